# program: recurse without an end
# habit: 36
# outcome: raised
# sees: RecursionError
# sees: Hint: The function calls itself too deep
# at most: 1500

def factorial(n):
    return n * factorial(n - 1)

print(factorial(5))
