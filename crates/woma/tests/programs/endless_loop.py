# program: loop without end
# outcome: timed_out
# timeout: 2
# sees: started
# sees: timed out after 2 seconds
# sees: Hint: pass a larger `timeout` in seconds, at most 600

print("started", flush=True)
n = 0
while True:
    n += 1
