# program: localise and convert timestamps in pandas
# sees: 2024-07-01 14:00:00+02:00

import pandas as pd

s = pd.to_datetime(pd.Series(["2024-07-01 12:00", "2024-01-01 12:00"]))
print(s.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"))
