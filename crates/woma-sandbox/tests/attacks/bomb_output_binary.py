# attack: print zero bytes, invalid UTF-8, escape sequences and lone surrogates
# must end: completed
# state: preserved
# then: survivor == 47
import os
survivor = 47
os.write(1, bytes(range(256)) * 16)
os.write(2, b"\xff\xfe\xed\xa0\x80\xf4\x90\x80\x80" * 100)
os.write(1, b"\xe2\x82")
os.write(1, b"\x1b]0;owned\x07\x1b[2J\x1bP+q\x1b\\\r\b\x00\n")
try:
    print("\ud800\udfff\x00\u202e")
except UnicodeEncodeError:
    pass
print()
print("held")
