# attack: wait for a child that never ends
# must end: timed_out
# limits: wall=2s
import subprocess
subprocess.run(["sleep", "471147"])
