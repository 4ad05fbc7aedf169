# attack: turn a gigantic number into text, which takes for ever in C
# must end: timed_out or out_of_memory
# limits: wall=2s memory=1g
import sys
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)
text = str(7 ** 30_000_000)
