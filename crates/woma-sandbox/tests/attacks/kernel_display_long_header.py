# attack: send a header that is longer than any honest one
# must end: crashed
# limits: wall=10s
# with: neighbour
# state: lost
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
display('{"role":"display","data":{"text/plain":"' + "x" * 300_000 + '"}}')
import time
time.sleep(5)
print("BREACH: a header of 300 kB was taken")
