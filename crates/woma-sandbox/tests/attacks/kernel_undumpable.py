# attack: hide our memory figures from the watchdog by becoming undumpable, then grow
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
blocks = []
while True:
    blocks.append(bytearray(b"x") * (8 << 20))
