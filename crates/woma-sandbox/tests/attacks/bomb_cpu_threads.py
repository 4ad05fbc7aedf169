# attack: burn every processor from C code in threads, without the interpreter's lock
# must end: timed_out
# limits: wall=2s processes=64 memory=512m
# with: neighbour
import hashlib, threading
def burn():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**8)
for _ in range(16):
    threading.Thread(target=burn, daemon=True).start()
burn()
