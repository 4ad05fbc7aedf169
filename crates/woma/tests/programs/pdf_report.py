# program: write a PDF and read its text back
# files: invoice.pdf
# sees: Extracted: Invoice 2024-001

import pdfplumber
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table

styles = getSampleStyleSheet()
doc = SimpleDocTemplate("invoice.pdf", pagesize=A4)
doc.build([
    Paragraph("Invoice 2024-001", styles["Title"]),
    Spacer(1, 12),
    Table([["Item", "Price"], ["Consulting", "1,000"]]),
])
with pdfplumber.open("invoice.pdf") as pdf:
    text = pdf.pages[0].extract_text()
print("Extracted:", text.splitlines()[0])
