# program: decompose a matrix and end with a value
# sees: Eigenvalues: [1. 3.]
# sees: Out: True

import numpy as np

A = np.array([[2.0, 1.0], [1.0, 2.0]])
w, v = np.linalg.eigh(A)
print("Eigenvalues:", w)
bool(np.allclose(v @ np.diag(w) @ v.T, A))
