%%time
# profiles: open tiers tiers+all power-interpreter
# A cell that is Python, and is timed.
import os
eval('1')
