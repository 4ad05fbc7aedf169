# program: show a progress bar
# habit: 24
# sees: 100%
# sees: sum 4950
# at most: 400

from tqdm import tqdm

total = 0
for i in tqdm(range(100), desc="Processing"):
    total += i
print("sum", total)
