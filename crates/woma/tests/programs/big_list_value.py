# program: end with a value of a million elements
# habit: 8
# sees: Out:
# at most: 27000

numbers = list(range(1_000_000))
numbers
