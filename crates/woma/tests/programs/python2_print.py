# program: a print statement of Python 2
# outcome: raised
# sees: SyntaxError
# sees: print(

total = 3
print "Total:", total
