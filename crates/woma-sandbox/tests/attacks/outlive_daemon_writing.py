# attack: leave a child that keeps writing; it must neither delay the answer nor spoil the next one
# must end: completed
# limits: wall=3s output=1m
# state: preserved
# then: survivor == 61
import subprocess
survivor = 61
child = subprocess.Popen(["sh", "-c", "sleep 0.3; while :; do echo late; sleep 0.05; done"], start_new_session=True)
print("held")
