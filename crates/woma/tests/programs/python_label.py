# program: code with the word python as its first line
# habit: 45
# outcome: raised
# sees: The first line is only the word `python`: leave it out.
# at most: 500

python
import math
print(math.pi)
