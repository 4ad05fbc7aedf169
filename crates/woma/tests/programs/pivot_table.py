# program: make a pivot table with margins
# sees: All
# sees: Q2
# sees: 410

import pandas as pd

sales = pd.DataFrame({
    "quarter": ["Q1", "Q1", "Q2", "Q2", "Q1"],
    "region": ["East", "West", "East", "West", "East"],
    "amount": [100, 80, 120, 60, 50],
})
pivot = pd.pivot_table(sales, values="amount", index="quarter", columns="region",
                       aggfunc="sum", margins=True)
print(pivot)
