# attack: store data in extended attributes, which no count of blocks shows everywhere
# must end: completed
# limits: wall=10s workspace=64m memory=512m
# with: folder
import errno, os
os.mkdir("folder")
open("file", "w").close()
os.symlink("file", "link")
for path, follow in (("file", True), ("folder", True), ("link", True), ("file", False)):
    for name in ("user.data", "user." + "x" * 240):
        try:
            os.setxattr(path, name, b"x" * 2000, follow_symlinks=follow)
            print("BREACH: stored in", path, name[:12])
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                print("BREACH: the file system was asked:", error)
# Copying with everything that belongs to a file works all the same.
import shutil
shutil.copy2("file", "copy")
shutil.copytree("folder", "folder2")
print(os.listxattr("copy"))
print("held")
