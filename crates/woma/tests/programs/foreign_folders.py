# program: use the folders of several other services
# habit: 27, 58
# files: out.txt, colab.txt, home.txt
# sees: ['colab.txt', 'home.txt', 'out.txt']

import os

os.makedirs("/mnt/user-data/outputs", exist_ok=True)
with open("/mnt/user-data/outputs/out.txt", "w") as f:
    f.write("1")
with open("/content/colab.txt", "w") as f:
    f.write("2")
with open("/home/jovyan/home.txt", "w") as f:
    f.write("3")
print(sorted(os.listdir("/mnt/data")))
