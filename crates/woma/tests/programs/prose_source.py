# program: prose instead of code
# habit: 39
# outcome: raised
# sees: SyntaxError
# sees: Hint:
# at most: 700

I will now load the data and calculate the average of each column.
