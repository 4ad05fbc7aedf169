# program: ask for input that nobody gives
# habit: 15
# outcome: raised
# sees: input

name = input("What is your name? ")
print("Hello", name)
