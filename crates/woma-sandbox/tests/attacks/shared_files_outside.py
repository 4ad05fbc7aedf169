# attack: without mounts, read, change or remove files outside of the session's own two folders, by every call there is
# must end: completed
# rungs: restricted minimal
# with: neighbour folder
import ctypes, os, shutil
libc = ctypes.CDLL(None, use_errno=True)
home, around = os.getcwd(), os.path.dirname(os.getcwd())
scratch = os.path.dirname(os.environ["TMPDIR"])
base = os.path.dirname(os.path.dirname(scratch))
targets = ["/var/tmp/woma-attack-secret.txt", around + "/beside.txt", base + "/lock", base + "/files/zygote.py", "/etc/shadow",
           "/etc/ssl/private", "/usr/bin/env"]
reads = targets[:3] + targets[4:6] + ["/", "/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/run", "/proc", around, base]
for path in reads:
    for how in (open, os.listdir, os.scandir, lambda p: os.open(p, os.O_RDONLY), lambda p: os.open(p, os.O_RDWR)):
        try:
            how(path)
            print("BREACH: opened", path)
        except OSError:
            pass
changes = {
    "truncate": lambda p: os.truncate(p, 0), "cut by open": lambda p: os.open(p, os.O_RDONLY | os.O_TRUNC),
    "append": lambda p: os.open(p, os.O_WRONLY | os.O_APPEND), "unlink": os.unlink, "rmdir": os.rmdir,
    "rename": lambda p: os.rename(p, home + "/taken"), "replace": lambda p: os.replace(home + "/mine", p),
    "link": lambda p: os.link(p, home + "/linked"), "link over": lambda p: os.link(home + "/mine", p + "-new"),
    "symlink beside": lambda p: os.symlink("/etc", p + "-link"), "mkdir beside": lambda p: os.mkdir(p + "-dir"),
    "fifo beside": lambda p: os.mkfifo(p + "-fifo"), "chmod": lambda p: os.chmod(p, 0o777), "chown": lambda p: os.chown(p, -1, os.getgid()),
    "times": lambda p: os.utime(p, (0, 0)), "attribute": lambda p: os.setxattr(p, "user.x", b"1"),
    "temporary": lambda p: os.open(os.path.dirname(p), os.O_TMPFILE | os.O_RDWR),
    "by descriptor": lambda p: os.open(f"/proc/self/fd/{os.open(p, os.O_PATH)}", os.O_RDWR),
    "mode by descriptor": lambda p: os.chmod(f"/proc/self/fd/{os.open(p, os.O_PATH)}", 0o777),
    "owner by descriptor": lambda p: os.fchown(os.open(p, os.O_RDONLY), -1, os.getgid()),
}
open("mine", "w").write("x")
for path in targets:
    for name, change in changes.items():
        try:
            change(path)
            print("BREACH:", name, path)
        except OSError:
            pass
os.symlink("/var/tmp/woma-attack-secret.txt", "by-link")
for path in ("by-link", "../beside.txt", "../../"):
    try:
        open(path).read()
        print("BREACH: read by", path)
    except OSError:
        pass
# The session's own work goes on.
shutil.copy2("mine", "copy")
os.chmod("copy", 0o700)
print("held" if open("copy").read() == "x" else "BREACH: it cannot copy its own files")
