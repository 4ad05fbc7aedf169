# program: shadow builtins, by accident
# habit: 37
# sees: [1, 2] 3 abc
# sees: Variables:

list = [1, 2]
sum = 3
id = "abc"
print(list, sum, id)
