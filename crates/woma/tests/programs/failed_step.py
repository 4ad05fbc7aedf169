# program: go on after an error: what was made before it is still there
# outcome: raised
# sees: loaded 3 rows
# sees: ZeroDivisionError
# sees: Variables: 

rows = [3, 0, 5]
print("loaded", len(rows), "rows")
ratios = [10 / r for r in rows]
