# attack: a matrix operation that takes for ever in a numerical library
# must end: timed_out
# limits: wall=2s memory=1g
# with: neighbour
import numpy
numpy.linalg.svd(numpy.random.default_rng(1).random((3000, 3000)))
