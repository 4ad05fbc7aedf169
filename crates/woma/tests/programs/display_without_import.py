# program: call display without importing it
# habit: 9
# sees: [1, 2, 3]

display([1, 2, 3])
