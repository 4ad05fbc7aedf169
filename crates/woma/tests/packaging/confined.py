"""Runs a program as in a container: without capabilities and new privileges, under a seccomp profile of Docker's form.

    confined.py PROFILE USER COMMAND ARGUMENT...
    confined.py PROFILE USER --without CALL COMMAND ARGUMENT...

USER is the number that root becomes; it is not used by an ordinary user. `--without` takes a call from the profile.
"""

import ctypes
import json
import os
import sys

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ATTRIBUTE_NO_NEW_PRIVILEGES = 3
UNKNOWN_CALL = -1
PR_CAPBSET_DROP, CAPABILITIES = 24, 64


def load(profile, without):
    """Loads the profile with Debian's libseccomp, which container runtimes use too."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ERRNO | profile["defaultErrnoRet"]))
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO" and context.value
    assert library.seccomp_attr_set(context, ATTRIBUTE_NO_NEW_PRIVILEGES, 1) == 0
    for rule in profile["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW" and set(rule) == {"comment", "names", "action"}, rule
        for name in set(rule["names"]) - without:
            number = library.seccomp_syscall_resolve_name(name.encode())
            # A call of another architecture, or one that this libseccomp does not know.
            if number != UNKNOWN_CALL:
                library.seccomp_rule_add(context, ALLOW, number, 0)
    assert library.seccomp_load(context) == 0, "the profile cannot be loaded"


def main():
    profile, user, *command = sys.argv[1:]
    without = set()
    while command[0] == "--without":
        without, command = without | {command[1]}, command[2:]
    if os.getuid() == 0:
        library = ctypes.CDLL(None, use_errno=True)
        for capability in range(CAPABILITIES):
            if library.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break
        os.setgroups([])
        os.setresgid(*[int(user)] * 3)
        os.setresuid(*[int(user)] * 3)
    with open(profile) as file:
        load(json.load(file), without)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
