# attack: have the server take apart millions of small objects, in headers within their limit
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
inner = "[" + ",".join(['{"a":{}}'] * 27_000) + "]"
for _ in range(70):
    display('{"role":"display","data":{"application/json":%s},"binary":[],"metadata":{"a":%s}}' % (inner[:1] + "0]", inner))
    display('{"role":"display","data":{"application/json":%s},"binary":[]}' % inner)
print("held")
