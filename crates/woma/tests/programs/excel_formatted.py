# program: write a formatted workbook with a chart by xlsxwriter
# habit: 33
# files: budget.xlsx
# sees: Saved budget.xlsx

import xlsxwriter

workbook = xlsxwriter.Workbook("budget.xlsx")
sheet = workbook.add_worksheet("Budget")
bold = workbook.add_format({"bold": True, "bg_color": "#DDEBF7"})
money = workbook.add_format({"num_format": "$#,##0"})

sheet.write_row("A1", ["Item", "Cost"], bold)
for row, (item, cost) in enumerate([("Rent", 1000), ("Gas", 100), ("Food", 300)], start=1):
    sheet.write(row, 0, item)
    sheet.write(row, 1, cost, money)
sheet.write_formula("B5", "=SUM(B2:B4)", money)

chart = workbook.add_chart({"type": "column"})
chart.add_series({"values": "=Budget!$B$2:$B$4", "categories": "=Budget!$A$2:$A$4"})
sheet.insert_chart("D2", chart)
workbook.close()
print("Saved budget.xlsx")
