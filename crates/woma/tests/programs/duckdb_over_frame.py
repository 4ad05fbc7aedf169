# program: query a frame with SQL
# habit: 33
# sees: 2023
# sees: 300

import duckdb
import pandas as pd

df = pd.DataFrame({"year": [2022, 2023, 2023], "amount": [50, 100, 200]})
result = duckdb.sql("SELECT year, SUM(amount) AS total FROM df GROUP BY year ORDER BY year").df()
print(result)
