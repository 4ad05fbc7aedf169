# program: measure a cell with a cell magic
# habit: 2
# sees: Wall time
# sees: 499999500000

%%time
total = sum(range(1_000_000))
print(total)
