# program: end the process at once
# habit: 16
# outcome: crashed
# sees: before the end

import os

answer = 42
print("before the end", flush=True)
os._exit(1)
