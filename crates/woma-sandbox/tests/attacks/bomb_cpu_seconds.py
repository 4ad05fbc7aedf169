# attack: use more processor time than the limit, within the wall limit
# must end: timed_out or crashed
# limits: wall=8s cpu_seconds=1 memory=512m
while True:
    pass
