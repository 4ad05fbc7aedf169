# program: misspell a name
# outcome: raised
# sees: NameError: name 'custmers' is not defined
# not: Error: NameError

customers = ["a", "b"]
for customer in custmers:
    print(customer)
