# attack: have the server keep a hundred megabytes of notes, then flood it with more
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
note = ('{"code":"blocked_import","text":"%s","subject":"%s"}' % ("x" * 500_000, "y" * 500_000)).encode()
for _ in range(110):
    send(0x84, note)
small = ('{"code":"c","text":"%s"}' % ("x" * 2_000)).encode()
for _ in range(20_000):
    send(0x84, small)
print("held")
