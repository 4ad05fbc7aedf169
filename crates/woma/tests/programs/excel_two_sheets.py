# program: write a workbook with two sheets and read it back
# sees: Sheets: ['Sales', 'Costs']
# sees: Profit: 70
# files: report.xlsx

import pandas as pd

with pd.ExcelWriter("report.xlsx", engine="openpyxl") as writer:
    pd.DataFrame({"amount": [100, 50]}).to_excel(writer, sheet_name="Sales", index=False)
    pd.DataFrame({"amount": [30, 50]}).to_excel(writer, sheet_name="Costs", index=False)

book = pd.ExcelFile("report.xlsx")
print("Sheets:", book.sheet_names)
profit = book.parse("Sales")["amount"].sum() - book.parse("Costs")["amount"].sum()
print(f"Profit: {profit}")
