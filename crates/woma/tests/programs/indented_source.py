# program: code that is indented as a whole
# habit: 4
# sees: total = 6

    numbers = [1, 2, 3]
    total = 0
    for n in numbers:
        total += n
    print("total =", total)
