# attack: loop in C, where the interpreter never looks at signals
# must end: timed_out
# limits: wall=2s
# state: lost
sum(range(10**13))
