# program: misspell a method
# outcome: raised
# sees: AttributeError
# sees: 'list' object has no attribute 'apend'

items = []
items.apend(3)
