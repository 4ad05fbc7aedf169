# attack: overwrite the interpreter's own objects and the allocator's memory
# must end: crashed or raised or timed_out
# limits: wall=2s
# with: neighbour
import ctypes
for size in (24, 64, 512, 4096):
    block = ctypes.create_string_buffer(size)
    ctypes.memset(ctypes.addressof(block), 0x41, 1 << 16)
ctypes.memset(id(type), 0, 256)
print(type(1))
