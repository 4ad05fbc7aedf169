# program: pack files into archives
# files: bundle.zip, bundle.tar.gz
# sees: ['data/a.txt', 'data/b.txt']

import os
import tarfile
import zipfile

os.makedirs("data", exist_ok=True)
for name in "ab":
    with open(f"data/{name}.txt", "w") as f:
        f.write(name * 10)
with zipfile.ZipFile("bundle.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for name in sorted(os.listdir("data")):
        z.write(f"data/{name}")
    print(z.namelist())
with tarfile.open("bundle.tar.gz", "w:gz") as tar:
    tar.add("data")
