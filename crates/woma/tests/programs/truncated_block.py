# program: code that ends after a colon
# habit: 38
# outcome: raised
# sees: truncated

rows = [1, 2, 3]
for row in rows:
