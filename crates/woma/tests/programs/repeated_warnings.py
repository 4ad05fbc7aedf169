# program: cause the same warning many times
# habit: 26
# sees: finished
# at most: 900

import warnings

def old_function(i):
    warnings.warn("old_function is deprecated, use new_function", DeprecationWarning, stacklevel=2)
    return i

warnings.simplefilter("always")
for i in range(200):
    old_function(i)
print("finished")
