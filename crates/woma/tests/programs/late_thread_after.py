# program: let the thread of the earlier call end
# habit: 23
# session: continues late_thread
# sees: joined

go.set()
thread.join()
print("joined")
