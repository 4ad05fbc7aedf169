# program: ask for help on an object
# habit: 2
# sees: Compute the mean

def mean(values):
    """Compute the mean of the values."""
    return sum(values) / len(values)

mean?
