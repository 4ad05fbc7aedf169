# attack: double a string until memory is exhausted
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
text = "woma" * 1000
while True:
    text += text
