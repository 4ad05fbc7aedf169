# program: fill a database and query it with joins
# habit: 51
# files: shop.db
# sees: ('Alice', 2, 30.0)

import sqlite3

conn = sqlite3.connect("shop.db")
cur = conn.cursor()
cur.executescript("""
    CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER, total REAL);
""")
cur.executemany("INSERT INTO users (name) VALUES (?)", [("Alice",), ("Bob",)])
cur.executemany("INSERT INTO orders (user_id, total) VALUES (?, ?)", [(1, 10), (1, 20), (2, 5)])
conn.commit()
for row in cur.execute("""
    SELECT u.name, COUNT(*), SUM(o.total) FROM users u JOIN orders o ON o.user_id = u.id
    GROUP BY u.name ORDER BY 3 DESC"""):
    print(row)
conn.close()
