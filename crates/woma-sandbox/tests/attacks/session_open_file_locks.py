# attack: locks that belong to an open file and not to a process: they pass to others with it and outlive us
# must end: completed
import errno, fcntl, os, struct, subprocess, sys
with open("own.txt", "w") as file:
    for command in (37, 38):
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
        try:
            fcntl.fcntl(file, command, lock)
            print("BREACH: an open file description lock", command)
        except OSError as error:
            if error.errno != errno.EPERM:
                print("BREACH: not refused by the filter:", error)
    # Databases need the other two kinds.
    fcntl.lockf(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_UN)
    fcntl.flock(file, fcntl.LOCK_EX)
import sqlite3
with sqlite3.connect("own.db") as base:
    base.execute("create table t (x)")
    base.execute("insert into t values (1)")
print("held")
