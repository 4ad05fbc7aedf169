# program: change the working directory
# habit: 43
# sees: sub
# sees: ['inner.txt']

import os

os.makedirs("sub", exist_ok=True)
os.chdir("sub")
print(os.path.basename(os.getcwd()))
open("inner.txt", "w").close()
print(os.listdir("."))
