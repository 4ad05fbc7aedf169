# program: end with a status
# habit: 16
# outcome: raised
# sees: checking
# sees: Error: the program ended with status 2
# at most: 200

import sys

def main():
    print("checking")
    return 2

if __name__ == "__main__":
    sys.exit(main())
