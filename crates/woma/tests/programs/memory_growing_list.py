# program: grow a list past the memory limit
# habit: 57
# outcome: raised or out_of_memory
# memory: 256m
# sees: emory
# sees: line 4

chunks = []
while True:
    # ten megabytes each
    chunks.append(bytearray(10 * 1024 * 1024))
