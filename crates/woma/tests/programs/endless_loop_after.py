# program: go on after the loop: the variables are as they were
# session: continues endless_loop
# sees: True

print(n > 1000)
