# program: fit a pipeline and cross-validate it
# sees: R2 = 1.000
# sees: Pipeline(

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = X @ [1.5, -2.0, 0.5] + 4
pipe = make_pipeline(StandardScaler(), LinearRegression())
scores = cross_val_score(pipe, X, y, cv=5)
print(f"R2 = {scores.mean():.3f}")
pipe.fit(X, y)
