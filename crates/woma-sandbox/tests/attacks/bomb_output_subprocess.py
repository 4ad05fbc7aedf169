# attack: let a child flood the output
# must end: timed_out
# limits: wall=2s output=1m memory=256m
# with: neighbour
import subprocess
subprocess.run(["yes", "woma"])
