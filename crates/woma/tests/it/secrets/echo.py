"""Hosts that send back what they were told, in every way that the test can think of."""
import base64

KEY = os.environ["KEY"]
site = "https://site.test"


def look(where, *texts):
    for text in texts:
        text = text if isinstance(text, str) else text.decode("latin-1")
        if START in text or START.encode().hex() in text.lower():
            print("BREACH: the value came back in", where, repr(text[:300]))


def base64_forms():
    for before in ("", "a", "ab"):
        encoded = base64.b64encode((before + START).encode()).decode().rstrip("=")
        yield encoded[4:-2] if before else encoded[:-2]


for path in ("/echo", "/header", "/reason", "/chunks", "/trailer", "/large", "/gzip", "/gzips", "/deflate"):
    reply = requests.get(site + path, headers=headers)
    look(path, reply.text, str(reply.headers), reply.reason or "")
    if path in ("/echo", "/chunks", "/large", "/gzip", "/gzips", "/deflate") and KEY not in reply.text:
        print("BREACH: no placeholder in", path, reply.text[:300])
# Compressed in a way that cannot be read: refused, and nothing of it comes.
reply = requests.get(site + "/br", headers=headers)
look("/br", reply.content)
if reply.status_code != 403:
    print("BREACH: an unreadable answer came", reply.status_code)
# As a password, in base64.
reply = requests.get(site + "/echo", auth=("user", KEY))
for form in base64_forms():
    if form in reply.text:
        print("BREACH: the value came back in base64", reply.text)
# By another method.
reply = requests.request("TRACE", site + "/echo", headers=headers)
look("TRACE", reply.text)
# A part of an answer.
reply = requests.get(site + "/echo", headers=headers | {"Range": "bytes=0-40"})
look("a part", reply.text)
# A redirect to another host, which the program follows with what it was told.
reply = requests.get(site + "/redirect", headers=headers)
look("a redirect", reply.text, *[str(one.headers) for one in reply.history])
# A large answer without values comes whole.
reply = requests.get(site + "/bytes", headers=headers)
if len(reply.content) != 3_000_000:
    print("BREACH: an answer was cut", len(reply.content))
# Nothing of it is in this process, or in what it can read.
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        span, rights, *_ = line.split()
        if not rights.startswith("rw"):
            continue
        start, end = (int(one, 16) for one in span.split("-"))
        try:
            memory.seek(start)
            content = memory.read(end - start)
        except (OSError, OverflowError, ValueError):
            continue
        # The rest of the value, which this program does not have.
        if b"7Jq" + b"/2+Z" in content:
            print("BREACH: the value is in memory")
print("held")
