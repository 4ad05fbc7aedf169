# attack: enter the kernel by the 32-bit gate, where numbers mean other calls than the filter thinks
# must end: completed
import ctypes, mmap, os, platform
if platform.machine() == "x86_64":
    # push rbx; mov eax, NUMBER; xor ebx, ebx; int 0x80; pop rbx; ret
    for number in (20, 310, 24, 49):
        pid = os.fork()
        if pid == 0:
            page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            page.write(b"\x53\xb8" + number.to_bytes(4, "little") + b"\x31\xdb\xcd\x80\x5b\xc3")
            enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
            os._exit(0 if enter() < 0 else 42)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42:
            print("BREACH: 32-bit call", number, "was answered")
print("held")
