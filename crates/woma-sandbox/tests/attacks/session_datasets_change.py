# attack: change, add or delete a dataset, or make the mount writable
# must end: completed
# with: neighbour folder datasets
# rungs: strong
import ctypes, errno, mmap, os, platform, subprocess
at = "/datasets/sales.parquet"
def tried(name, action):
    try:
        action()
    except (OSError, ValueError, subprocess.SubprocessError):
        return
    print("BREACH:", name)
tried("create", lambda: open("/datasets/new.parquet", "w"))
tried("mkdir", lambda: os.mkdir("/datasets/new"))
tried("symlink", lambda: os.symlink("/etc/passwd", "/datasets/new"))
tried("fifo", lambda: os.mkfifo("/datasets/new"))
if os.path.exists(at):
    tried("write", lambda: open(at, "r+"))
    tried("truncate", lambda: os.truncate(at, 0))
    tried("remove", lambda: os.remove(at))
    tried("rename", lambda: os.rename(at, "/datasets/new"))
    tried("exchange", lambda: os.rename("/mnt/data/x", at) if open("/mnt/data/x", "w") else None)
    tried("hard link into the workspace", lambda: os.link(at, "/mnt/data/linked"))
    tried("chmod", lambda: os.chmod(at, 0o777))
    tried("chown", lambda: os.chown(at, os.getuid(), os.getgid()))
    tried("by descriptor", lambda: os.open(f"/proc/self/fd/{os.open(at, os.O_RDONLY)}", os.O_RDWR))
    tried("shared mapping", lambda: mmap.mmap(os.open(at, os.O_RDONLY), 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
    tried("execute", lambda: subprocess.run([at], check=True))
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
for flags in (0x20, 0x20 | 0x1000, 0x1000):
    result, error = call(165, 40, b"/mnt/data", b"/datasets", b"none", flags, 0)
    if result == 0 or error not in REFUSED:
        print("BREACH: mount passed", flags, error)
result, error = call(166, 39, b"/datasets", 2)
if result == 0 or error not in REFUSED:
    print("BREACH: umount passed", error)
attributes = ctypes.create_string_buffer(bytes(8) + (1).to_bytes(8, "little") + bytes(16))
result, error = call(442, 442, -100, b"/datasets", 0, attributes, 32)
if result == 0 or error not in REFUSED:
    print("BREACH: mount_setattr passed", error)
print("held")
