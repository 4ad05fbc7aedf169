# program: correct the error in the next call
# session: continues failed_step
# sees: [3.3333333333333335, None, 2.0]

ratios = [10 / r if r else None for r in rows]
print(ratios)
