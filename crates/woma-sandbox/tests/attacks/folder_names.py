# attack: names on disk that break parsers and terminals: invalid UTF-8, newlines, escapes, right to left, 255 bytes
# must end: completed
# with: folder
# then: len(__import__("os").listdir("/mnt/data")) > 10
names = [b"\xff\xfe\x80", b"new\nline", b"\x1b[2J\x1b]0;owned\x07", b"a" * 255, b"...", b"-rf", b"%00", b"..\\..\\x",
         "\u202egnp.exe".encode(), "\u0645".encode() * 127, b" ", b"~", b"a\rb", b"\x01\x7f", b".woma-0", b"sandbox:", b"C:", b"\xed\xa0\x80"]
for name in names:
    open(b"/mnt/data/" + name, "wb").write(b"x")
print("held")
