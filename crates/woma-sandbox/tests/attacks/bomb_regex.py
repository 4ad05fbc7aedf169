# attack: a regular expression that takes for ever
# must end: timed_out
# limits: wall=2s
import re
re.match(r"(a|a)*$", "a" * 60 + "b")
