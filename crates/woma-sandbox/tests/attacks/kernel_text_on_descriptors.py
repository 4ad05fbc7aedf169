# attack: write text that looks like other protocols to every inherited descriptor
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import os
for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b'{"jsonrpc":"2.0","id":1,"result":{}}\n', b"\0" * 64, b"\xff" * 64, b"\n" * 64, b"\x80\x04\x95"):
    for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
        try:
            os.write(fd, text)
        except OSError:
            pass
