# program: draw a picture and end with it as the value
# habit: 14
# pictures: 1

from PIL import Image, ImageDraw

img = Image.new("RGB", (200, 100), "white")
draw = ImageDraw.Draw(img)
draw.rectangle([20, 20, 180, 80], outline="navy", width=3)
draw.text((60, 40), "Hello", fill="black")
img
