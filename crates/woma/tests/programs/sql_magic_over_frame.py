# program: query a frame with the cell magic of SQL
# sees: 2023
# sees: 300
# not: UsageError

%%sql totals <<
SELECT year, SUM(amount) AS total
FROM (VALUES (2022, 50), (2023, 100), (2023, 200)) AS t(year, amount)
GROUP BY year ORDER BY year
