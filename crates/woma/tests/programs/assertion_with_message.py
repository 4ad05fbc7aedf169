# program: check a result and fail
# outcome: raised
# sees: AssertionError: expected 10 rows, got 9
# at most: 500

rows = list(range(9))
assert len(rows) == 10, f"expected 10 rows, got {len(rows)}"
