# program: one backtick left at the end
# habit: 45
# sees: squares [1, 4, 9]
# sees: Note:

squares = [n ** 2 for n in (1, 2, 3)]
print("squares", squares)`
