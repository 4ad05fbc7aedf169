"""Runs a command on a kernel that lacks some system calls: without.py ERRNO NR[,NR…] COMMAND…

The calls fail with ERRNO for the command and all its children, as on an older kernel, or in a
container whose profile refuses them.
"""

import ctypes
import os
import struct
import sys

errno, numbers, command = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000

program = [(LOAD_NUMBER, 0, 0, 0)]
for number in numbers:
    program += [(JUMP_IF_EQUAL, 0, 1, int(number)), (RETURN, 0, 0, ERRNO | errno)]
program.append((RETURN, 0, 0, ALLOW))
code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
buffer = ctypes.create_string_buffer(code, len(code))
header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, MODE_FILTER, header, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(command[0], command)
