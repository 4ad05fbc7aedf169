# attack: have the server take apart megabytes of small objects behind the header
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
inner = ("[" + ",".join(['{"a":{}}'] * 900_000) + "]").encode()
header = '{"role":"display","binary":[{"mime":"application/json","bytes":%d,"form":"json"}]}' % len(inner)
for _ in range(12):
    display(header, inner)
print("held")
