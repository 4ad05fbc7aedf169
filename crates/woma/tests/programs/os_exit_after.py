# program: the session goes on after the process ended
# habit: 16
# session: continues os_exit
# sees: still 3

print("still", 1 + 2)
