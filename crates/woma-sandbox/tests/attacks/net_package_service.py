# attack: misuse the socket by which pip of this room speaks to the server
# must end: completed
# limits: wall=20s
import json, os, socket
PATH = "/run/woma/packages"
def say(*parts):
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(3)
        link.connect(PATH)
        for part in parts:
            link.sendall(part)
        link.shutdown(socket.SHUT_WR)
        return link.recv(65536)
def line(**fields):
    return json.dumps({"do": "install", "requirements": ["six"], **fields}).encode() + b"\n"
for request in (
    b"\n", b"{}\n", b"\0" * 70_000, b'{"do": "install"}\n', b'{"do": "run", "requirements": ["x"]}\n', line(owner="key:other"),
    line(session="other"), line(requirements="six"), line(requirements=["--index-url=http://127.0.0.1:47110/", "six"]),
    line(requirements=["six @ file:///etc/passwd"]), line(requirements=["/etc"]), line(requirements=["../../x"]),
    line(requirements=["six\n--pre"]), line(requirements=["-r /etc/passwd"]), line(requirements=["git+http://127.0.0.1:47110/x"]),
):
    try:
        answer = say(request)
    except OSError:
        continue
    if b'"installed"' in answer or b"root:" in answer or b"planted" in answer:
        print("BREACH: taken", request[:80], answer[:200])
links = []
try:
    for _ in range(100):
        link = socket.socket(socket.AF_UNIX)
        link.setblocking(False)
        links.append(link)
        link.connect(PATH)
except OSError:
    pass
for act in (lambda: os.unlink(PATH), lambda: os.rename(PATH, PATH + "x"), lambda: open("/run/woma/other", "w").close()):
    try:
        act()
        print("BREACH: changed the folder of the server's sockets")
    except OSError:
        pass
for link in links:
    link.close()
print("held")
