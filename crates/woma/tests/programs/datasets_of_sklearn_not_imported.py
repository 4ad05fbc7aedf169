# program: use scikit-learn's datasets without importing them
# outcome: raised
# sees: from sklearn import datasets
# at most: 1500

iris = datasets.load_iris()
print(iris.feature_names)
