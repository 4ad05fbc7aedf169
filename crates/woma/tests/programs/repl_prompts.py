# program: code copied from an interactive session
# sees: 42

>>> def double(n):
...     return 2 * n
...
>>> print(double(21))
