# program: code in a Markdown fence
# habit: 3
# sees: 120
# sees: Note: The code came in a markdown fence

```python
import math
print(math.factorial(5))
```
