# attack: use up the user's share of file watches
# must end: completed
# limits: open_files=128 wall=5s
# with: neighbour
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fds = []
while len(fds) < 100:
    fd = libc.inotify_init()
    if fd < 0:
        break
    fds.append(fd)
for number in range(400):
    try:
        os.mkdir(f"watched{number}")
    except OSError:
        break
    for fd in fds[:20]:
        libc.inotify_add_watch(fd, f"watched{number}".encode(), 0xFFF)
for fd in fds:
    os.close(fd)
print("held")
