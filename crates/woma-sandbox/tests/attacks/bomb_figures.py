# attack: open hundreds of figures, each of which would be drawn and sent
# must end: completed or raised or timed_out or out_of_memory
# limits: wall=10s memory=1g output=1m
# with: neighbour
try:
    from matplotlib import pyplot
except ImportError:
    pyplot = None
if pyplot:
    for number in range(300):
        pyplot.figure(figsize=(4, 3))
        pyplot.plot([1, 2, number])
print("held")
