# attack: catch every exception, the interrupt too, and go on
# must end: timed_out
# limits: wall=2s
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
