# program: end with a sentence
# habit: 16
# outcome: raised
# sees: no input given

import sys

if len(sys.argv) < 2:
    sys.exit("no input given")
