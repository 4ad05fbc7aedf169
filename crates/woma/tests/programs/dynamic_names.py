# program: use exec, eval, globals and locals
# habit: 42
# sees: 30
# sees: value_2 = 4

for i in range(3):
    globals()[f"value_{i}"] = i ** 2
print(eval("(value_1 + value_2) * 6"))
exec("print('value_2 =', value_2)")
