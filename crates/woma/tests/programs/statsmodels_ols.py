# program: fit a linear model by formula and print its summary
# sees: OLS Regression Results
# sees: Slope: 2.00

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

rng = np.random.default_rng(0)
df = pd.DataFrame({"x": np.linspace(0, 10, 50)})
df["y"] = 2 * df["x"] + 1 + rng.normal(scale=0.01, size=50)
results = smf.ols("y ~ x", data=df).fit()
print(results.summary())
print(f"Slope: {results.params['x']:.2f}")
