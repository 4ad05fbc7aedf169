# program: write files with names in several scripts
# habit: 28
# files: отчёт.txt, 数据 2024.csv, café ☕.txt
# sees: 数据 2024.csv

import os

for name in ["отчёт.txt", "数据 2024.csv", "café ☕.txt"]:
    with open(name, "w") as f:
        f.write("naïve — 漢字 — 🎉\n")
for name in sorted(os.listdir(".")):
    print(name, open(name).read().strip())
