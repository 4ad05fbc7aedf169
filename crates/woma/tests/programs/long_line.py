# program: print one line of 200 000 characters
# habit: 8
# sees: the end
# at most: 27000

print("x" * 200_000 + " the end")
