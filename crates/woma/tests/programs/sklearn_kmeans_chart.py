# program: cluster points and colour them
# pictures: 1
# sees: Cluster sizes: [50, 50, 50]
# not: Warning

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

X, _ = make_blobs(n_samples=150, centers=[(0, 0), (10, 10), (-10, 10)], random_state=0)
labels = KMeans(n_clusters=3, n_init=10, random_state=0).fit_predict(X)
print("Cluster sizes:", sorted(np.bincount(labels).tolist()))
plt.scatter(X[:, 0], X[:, 1], c=labels)
plt.show()
