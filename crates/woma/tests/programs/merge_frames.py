# program: join two frames and report what has no partner
# sees: Unmatched orders: 1
# sees: Alice

import pandas as pd

customers = pd.DataFrame({"id": [1, 2, 3], "name": ["Alice", "Bob", "Carol"]})
orders = pd.DataFrame({"customer_id": [1, 1, 2, 9], "total": [10.0, 20.0, 5.5, 1.0]})

merged = orders.merge(customers, left_on="customer_id", right_on="id", how="left", indicator=True)
print(f"Unmatched orders: {(merged['_merge'] == 'left_only').sum()}")
print(merged.groupby("name", dropna=False)["total"].sum())
