# attack: start programs with nohup in new sessions and wait for them; all must die at the time limit
# must end: timed_out
# limits: wall=2s processes=64
import subprocess
children = [subprocess.Popen(["nohup", "sh", "-c", "trap '' INT TERM HUP; sleep 471147 & sleep 471147"], start_new_session=True, stdin=subprocess.DEVNULL) for _ in range(3)]
for child in children:
    child.wait()
