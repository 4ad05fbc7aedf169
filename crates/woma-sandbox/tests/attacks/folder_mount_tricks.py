# attack: mount, bind and unmount on the names of the workspace
# must end: completed
# with: folder
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for path in (b"/mnt/data", b"/tmp", b"/app/sandbox_data", b"/app/sandbox_data/mine", b"/uploads", b"/run/scratch"):
    for call in (lambda: libc.mount(b"/", path, None, 4096, None), lambda: libc.mount(b"tmpfs", path, b"tmpfs", 0, None),
                 lambda: libc.mount(None, path, None, 32 | 4096, None), lambda: libc.umount2(path, 2),
                 lambda: libc.syscall(428, -100, path, 1), lambda: libc.syscall(442, -100, path, 0, None, 0)):
        if call() >= 0:
            print("BREACH: mount on", path)
print("held")
