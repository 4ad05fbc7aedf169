# program: a command line program that parses no arguments
# sees: Namespace(count=3)

import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=3)
    args = parser.parse_args()
    print(args)

if __name__ == "__main__":
    main()
