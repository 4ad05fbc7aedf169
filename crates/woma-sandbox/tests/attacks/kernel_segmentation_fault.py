# attack: read address zero
# must end: crashed
# with: neighbour
# state: lost
import ctypes
ctypes.string_at(0)
