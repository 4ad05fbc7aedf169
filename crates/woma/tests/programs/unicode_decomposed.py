# program: write a file whose name has combining characters
# habit: 28
# files: Zürich café.txt
# sees: 1 17 False

import os
import unicodedata

name = unicodedata.normalize("NFD", "Zürich café.txt")
with open(name, "w") as f:
    f.write("written\n")
composed = unicodedata.normalize("NFC", name)
print(len(os.listdir(".")), len(os.listdir(".")[0]), os.path.exists(composed))
