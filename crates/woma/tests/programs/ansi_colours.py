# program: print colours and a table with escapes
# habit: 25
# sees: PASS test_one
# sees: FAIL test_two
# not: [31m

GREEN, RED, RESET = "\033[92m", "\033[31m", "\033[0m"
print(f"{GREEN}PASS{RESET} test_one")
print(f"{RED}FAIL{RESET} test_two")
