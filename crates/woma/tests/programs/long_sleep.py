# program: sleep longer than the call may take
# habit: 35
# outcome: timed_out
# timeout: 2
# sees: waiting for the job
# sees: timed out after 2 seconds
# sees: Hint: pass a larger `timeout` in seconds, at most 600

import time

print("waiting for the job")
time.sleep(3600)
print("never")
