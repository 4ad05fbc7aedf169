# attack: end a run with as large an answer as a frame can hold: lists of nothing, a tree of objects
# must end: raised or completed or crashed
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
body = ('{"run":1,"status":"raised","exit_code":null,"execution_count":1,"variables":[%s],'
        '"error":{"name":"%s","message":"","traceback":[%s],"line":null},"result":{"text":"","json":[%s]}}'
        % (",".join(['{"name":"","type":""}'] * 10_000), "N" * 200_000, ",".join(['""'] * 60_000),
           ",".join(['{"a":{}}'] * 30_000))).encode()
assert len(body) < 1 << 20
print("held")
send(0x83, body)
