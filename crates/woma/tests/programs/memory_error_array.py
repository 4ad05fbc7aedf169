# program: make an array that does not fit into memory
# habit: 57
# outcome: raised
# memory: 512m
# sees: MemoryError
# sees: line 4
# sees: Hint:

import numpy as np

print("allocating")
matrix = np.ones((200_000, 200_000))
print(matrix.sum())
