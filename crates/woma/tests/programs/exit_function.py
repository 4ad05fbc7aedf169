# program: register a function for the end of the program
# sees: working
# sees: functions registered with atexit do not run here
# not: goodbye

import atexit


@atexit.register
def farewell():
    print("good" + "bye")


print("working")
