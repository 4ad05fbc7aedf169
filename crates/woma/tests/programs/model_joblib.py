# program: save a model with joblib and load it again
# habit: 20
# files: model.joblib
# sees: [3.]

import joblib
import numpy as np
from sklearn.linear_model import LinearRegression

model = LinearRegression().fit(np.array([[0], [1], [2]]), np.array([0.0, 1.0, 2.0]))
joblib.dump(model, "model.joblib")
loaded = joblib.load("model.joblib")
print(loaded.predict([[3]]).round(6))
