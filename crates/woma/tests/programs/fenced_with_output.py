# program: code followed by a fence with its expected output
# habit: 45
# sees: 55
# sees: Note:
# not: SyntaxError

print(sum(range(11)))
```
```output
55
```
