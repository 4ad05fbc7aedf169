# program: write a Word report with a table and a chart
# habit: 51
# files: report.docx
# sees: Report created: report.docx

from io import BytesIO

import matplotlib.pyplot as plt
from docx import Document
from docx.shared import Inches

doc = Document()
doc.add_heading("Quarterly Report", 0)
doc.add_paragraph("Revenue grew by 12 % in the last quarter.")
table = doc.add_table(rows=1, cols=2)
table.style = "Light Grid Accent 1"
table.rows[0].cells[0].text, table.rows[0].cells[1].text = "Month", "Revenue"
for month, revenue in [("Jan", 100), ("Feb", 110)]:
    cells = table.add_row().cells
    cells[0].text, cells[1].text = month, str(revenue)

buffer = BytesIO()
plt.bar(["Jan", "Feb"], [100, 110])
plt.savefig(buffer, format="png")
plt.close()
buffer.seek(0)
doc.add_picture(buffer, width=Inches(4))
doc.save("report.docx")
print("Report created: report.docx")
