# attack: have the server make a map of as many keys as fit into a header
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
display('{"role":"display","data":{' + ",".join(f'"{i:x}":0' for i in range(25_000)) + "}}")
import time
time.sleep(5)
print("BREACH: 25,000 representations were taken")
