# program: print a traceback that was caught
# sees: ZeroDivisionError: division by zero
# sees: recovered

import traceback

try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
print("recovered")
