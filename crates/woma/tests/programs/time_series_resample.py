# program: resample a daily series by month, as for pandas 2
# habit: 30
# sees: 2024-01-31    31
# sees: 2024-02-29    29

import pandas as pd

index = pd.date_range("2024-01-01", "2024-02-29", freq="D")
series = pd.Series(1, index=index)
monthly = series.resample("M").sum()
print(monthly)
