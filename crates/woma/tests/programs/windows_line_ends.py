# program: code with line ends of Windows
# habit: 6
# sees: second line: True

text = '''first
second'''
for line in text.splitlines():
    pass
print('second line:', line == 'second')
