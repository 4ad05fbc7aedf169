# attack: run bytes that are no code
# must end: crashed
# state: lost
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\x0f\x0b" * 8 if __import__("platform").machine() == "x86_64" else b"\0" * 16)
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
