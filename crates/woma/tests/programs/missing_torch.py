# program: import a large package that is not installed
# habit: 49
# outcome: raised
# sees: ModuleNotFoundError: No module named 'torch'
# sees: not installed
# at most: 700

import torch
import torch.nn as nn

model = nn.Linear(10, 1)
print(model)
