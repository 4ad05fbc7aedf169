# program: mix up the module and the class
# outcome: raised
# sees: AttributeError: module 'datetime' has no attribute 'now'
# sees: Hint: `datetime` is the module here

import datetime

print(datetime.now())
