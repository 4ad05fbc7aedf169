# attack: fill shared memory by one call of C, which neither a data limit nor an exception stops
# must end: out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
# state: lost
import ctypes, mmap
block = mmap.mmap(-1, 1 << 30)
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(block)), 1, 1 << 30)
