# program: import a package that is not installed, whose name differs from the module's
# habit: 34
# outcome: raised
# sees: ModuleNotFoundError: No module named 'skimage'
# sees: scikit-image

from skimage import filters
print(filters)
