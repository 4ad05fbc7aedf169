# program: code that begins with a byte-order mark
# habit: 5, 45
# sees: marked
# not: SyntaxError

﻿import sys
print("marked")
