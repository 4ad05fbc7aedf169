# program: filter a picture, show() and save it
# habit: 14
# pictures: 1
# files: blurred.jpg
# sees: Size: (64, 64), mode RGB

import numpy as np
from PIL import Image, ImageFilter

pixels = np.zeros((64, 64, 3), dtype=np.uint8)
pixels[16:48, 16:48] = (255, 128, 0)
image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(3))
print(f"Size: {image.size}, mode {image.mode}")
image.save("blurred.jpg", quality=90)
image.show()
