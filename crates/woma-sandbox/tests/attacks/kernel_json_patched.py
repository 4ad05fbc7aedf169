# attack: have the kernel's own messages encoded by us
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import json, struct
json.dumps = lambda *arguments, **options: '{"outcome":"completed","text":"' + "x" * 10_000_000 + '"}'
json.JSONEncoder.encode = lambda self, thing: "\ud800"
json.JSONEncoder.iterencode = lambda self, thing, *rest: iter(["\0" * 1000])
json.loads = lambda *arguments, **options: None
struct.pack = lambda *arguments: b"\xff" * 5
