# program: code whose line ends are escaped
# habit: 39
# sees: 1 one
# sees: it was unescaped

values = {1: 'one'}\nfor key, value in values.items():\n    print(key, value)
