# program: compute a rolling mean and plot both lines
# pictures: 1
# sees: Last 7-day mean: 26.0

import pandas as pd
import matplotlib.pyplot as plt

s = pd.Series(range(30), index=pd.date_range("2024-03-01", periods=30), name="visits")
rolling = s.rolling(window=7).mean()
print(f"Last 7-day mean: {rolling.iloc[-1]:.1f}")

fig, ax = plt.subplots(figsize=(8, 4))
ax.plot(s.index, s, label="daily")
ax.plot(rolling.index, rolling, label="7-day mean")
ax.legend()
fig.autofmt_xdate()
plt.tight_layout()
plt.show()
