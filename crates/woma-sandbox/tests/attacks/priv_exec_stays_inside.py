# attack: leave the jail by executing a fresh program; filter, locks and identity must come along
# must end: completed
# rungs: strong
import subprocess, sys
code = """
import ctypes, os
s = open('/proc/self/status').read()
print('NoNewPrivs:\\t1' in s and 'Seccomp:\\t2' in s and 'CapEff:\\t0000000000000000' in s and os.getuid() != 0)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000) == -1 and libc.mount(b'none', b'/mnt/data', b'tmpfs', 0, None) == -1 and libc.ptrace(16, 1, 0, 0) == -1)
"""
done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
if done.stdout.split() != ["True", "True"]:
    print("BREACH: a new program runs outside:", done)
print("held")
