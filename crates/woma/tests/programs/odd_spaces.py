# program: code with no-break and zero-width spaces
# habit: 5
# sees: total: 6
# sees: Note:

values = [1, 2, 3]
total = sum(values)​
print("total:", total)
