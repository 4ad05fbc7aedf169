# program: a fence with text around it
# habit: 3
# sees: average 2.0
# sees: markdown fence

Here is the code that computes the average:

```py
values = [1, 2, 3]
print("average", sum(values) / len(values))
```

This prints the average of the values.
