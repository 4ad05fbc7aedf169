# attack: loop in a finalizer, where exceptions and interrupts are swallowed
# must end: timed_out
# limits: wall=2s
# state: lost
class Sticky:
    def __del__(self):
        while True:
            pass
while True:
    Sticky()
