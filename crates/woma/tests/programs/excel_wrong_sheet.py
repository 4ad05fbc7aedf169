# program: read a sheet that the workbook does not have
# habit: 56
# outcome: raised
# sees: ValueError: Worksheet named 'Sales 2024' not found
# sees: The sheets are: 'Sales2024', 'Notes'
# not: openpyxl/reader

import pandas as pd

with pd.ExcelWriter("book.xlsx") as writer:
    pd.DataFrame({"x": [1]}).to_excel(writer, sheet_name="Sales2024")
    pd.DataFrame({"x": [2]}).to_excel(writer, sheet_name="Notes")

df = pd.read_excel("book.xlsx", sheet_name="Sales 2024")
print(df.head())
