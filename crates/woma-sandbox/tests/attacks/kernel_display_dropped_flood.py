# attack: keep the server busy with frames for which there is no room
# must end: completed or timed_out
# limits: wall=10s
# with: neighbour
import os, select, struct
def send(kind, body):
    data = memoryview(struct.pack(">IB", len(body) + 1, kind) + body)
    while data:
        select.select([], [900], [])
        try:
            data = data[os.write(900, data):]
        except BlockingIOError:
            pass
def display(header, parts=b""):
    header = header.encode()
    send(0x82, struct.pack(">I", len(header)) + header + parts)
header = '{"role":"display","binary":[{"mime":"image/png","bytes":%d}]}' % (15 << 20)
picture = bytes(15 << 20)
for _ in range(40):
    display(header, picture)
for _ in range(100_000):
    display('{"role":"display","data":{"text/plain":"x"}}')
print("held")
