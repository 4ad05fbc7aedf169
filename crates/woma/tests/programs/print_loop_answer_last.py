# program: print twenty thousand lines and the answer at the end
# habit: 8, 52
# sees: step 0
# sees: ANSWER: 199990000
# at most: 27000

total = 0
for i in range(20_000):
    total += i
    print(f"step {i}: running total {total}")
print("ANSWER:", total)
