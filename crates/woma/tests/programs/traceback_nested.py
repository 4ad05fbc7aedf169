# program: fail three functions deep
# outcome: raised
# sees: in process
# sees: in parse_row
# sees: ValueError: invalid literal for int() with base 10: 'n/a'
# at most: 1200

def parse_row(row):
    return int(row["quantity"])

def load(rows):
    return [parse_row(row) for row in rows]

def process():
    rows = [{"quantity": "3"}, {"quantity": "n/a"}]
    return sum(load(rows))

print("Processing...")
process()
