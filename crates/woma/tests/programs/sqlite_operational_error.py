# program: query a table that does not exist
# outcome: raised
# sees: OperationalError: no such table: customers

import sqlite3

conn = sqlite3.connect(":memory:")
conn.execute("CREATE TABLE customer (id INTEGER)")
print(conn.execute("SELECT * FROM customers").fetchall())
