# program: write a module and import it
# sees: 25
# sees: from my own queue

with open("helpers.py", "w") as f:
    f.write("def square(n):\n    return n * n\n")
with open("queue.py", "w") as f:
    f.write("name = 'my own queue'\n")

from helpers import square
import queue

print(square(5))
print("from", queue.name)
