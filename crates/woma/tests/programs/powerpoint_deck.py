# program: write a slide deck
# habit: 51
# files: deck.pptx
# sees: 2 slides

from pptx import Presentation
from pptx.util import Inches, Pt

prs = Presentation()
slide = prs.slides.add_slide(prs.slide_layouts[0])
slide.shapes.title.text = "Project Update"
slide.placeholders[1].text = "Week 12"
slide = prs.slides.add_slide(prs.slide_layouts[5])
slide.shapes.title.text = "Status"
box = slide.shapes.add_textbox(Inches(1), Inches(2), Inches(6), Inches(1))
box.text_frame.text = "On track"
box.text_frame.paragraphs[0].font.size = Pt(28)
prs.save("deck.pptx")
print(f"{len(prs.slides)} slides")
