# program: print a table by hand
# sees:   3  6  9
# sees: | Name | Score |

for i in range(1, 4):
    print("".join(f"{i * j:3d}" for j in range(1, 4)))
print("| Name | Score |")
print("|------|-------|")
print("| Ann  |    90 |")
