# attack: replace the standard streams by objects that raise, lie or loop
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import sys
class Stream:
    def __getattr__(self, name):
        raise BaseException(name)
    def write(self, text):
        raise BaseException("no output")
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Stream()
sys.stdin = None
