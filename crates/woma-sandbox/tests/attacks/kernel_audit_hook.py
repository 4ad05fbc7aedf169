# attack: forbid everything by an audit hook, which cannot be removed
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import sys
def refuse(event, arguments):
    raise BaseException("refused " + event)
sys.addaudithook(refuse)
