# program: open a file whose name is nearly right
# habit: 27
# outcome: raised
# sees: FileNotFoundError
# sees: customer_data.csv

from pathlib import Path

Path("customer_data.csv").write_text("id\n1\n")
with open("customers_data.csv") as f:
    print(f.read())
