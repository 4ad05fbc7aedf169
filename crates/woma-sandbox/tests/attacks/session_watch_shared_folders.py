# attack: learn by name what the host and other sessions open and execute, by watching folders that all of them read
# must end: completed
# below strong: refused at fd = os.open(folder, os.O_RDONLY)
import ctypes, errno, fcntl, os, platform, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    if number is None:
        return -1, errno.ENOSYS
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
for name, (result, error) in {
    "inotify_init": call(253, None), "inotify_init1": call(294, 26, 0), "fanotify_init": call(300, 262, 0, 0),
}.items():
    if result >= 0 or error not in (errno.ENOSYS, errno.EPERM):
        print("BREACH:", name, result, error)
signal.signal(signal.SIGIO, lambda *_: None)
for folder in ("/", "/usr", "/usr/bin", "/etc", "/mnt/data"):
    fd = os.open(folder, os.O_RDONLY)
    for command, value in ((fcntl.F_NOTIFY, 0x80000000 | 0x3F), (fcntl.F_SETLEASE, fcntl.F_RDLCK)):
        try:
            fcntl.fcntl(fd, command, ctypes.c_int(value).value)
            print("BREACH: fcntl", command, "on", folder)
        except OSError as error:
            if error.errno != errno.EPERM:
                print("BREACH: not refused by the filter:", command, folder, error)
    os.close(fd)
with open("own.txt", "w") as file:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        print("BREACH: a lease")
    except OSError as error:
        if error.errno != errno.EPERM:
            print("BREACH: a lease is not refused by the filter:", error)
print("held")
