# program: the working directory of the earlier call still holds
# habit: 43
# session: continues working_directory
# sees: inner.txt

import os
print(os.listdir())
