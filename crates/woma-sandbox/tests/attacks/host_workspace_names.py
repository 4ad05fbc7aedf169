# attack: leave file names that break parsers: invalid UTF-8, newlines, escapes, 255 bytes, dots, options
# must end: completed
# state: preserved
# then: survivor == 42
survivor = 42
names = [b"\xff\xfe\x80", b"new\nline", b"\x1b[2J\x1b]0;owned\x07", b"a" * 255, b"...", b"-rf", b"$(id)", b"`id`", b"%00", b"..\\..\\x",
         "\u202egnp.exe".encode(), b"con", b" ", b"~", b"a\rb", b"<script>", b'"; DROP TABLE files; --', b"\x01\x7f"]
for name in names:
    try:
        open(b"/mnt/data/" + name, "wb").write(b"x")
    except OSError:
        pass
print("held")
