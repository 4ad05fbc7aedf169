"""DuckDB in a bare process, and PostgreSQL: what datasets are compared with.

Started by `woma bench` in an empty folder with the environment's own Python. Reads one request a
line and answers with one line of JSON, so that both sides can be measured in turns.
"""

import glob
import json
import os
import pwd
import socket
import subprocess
import sys
import time

import duckdb

SALES = """
COPY (
    SELECT i AS id, DATE '2020-01-01' + (i % 1500)::INTEGER AS day,
           ['north', 'south', 'east', 'west', 'centre'][(hash(i) % 5 + 1)::BIGINT] AS region,
           'product ' || (hash(i * 3) % 200) AS product, (hash(i * 7) % 100)::INTEGER AS quantity,
           round((hash(i * 11) % 100000) / 100, 2) AS amount, md5(i::VARCHAR)[:12] AS customer
    FROM range(1500000) t(i)
) TO 'sales.csv' (HEADER)
"""


class Postgres:
    """A private server that trusts this user, removed with its folder."""

    def __init__(self):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not found:
            raise FileNotFoundError("PostgreSQL is not installed")
        self.programs = found[-1]
        self.user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        self.folder = os.path.abspath("postgres")
        os.mkdir(self.folder)
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
            os.chmod(".", 0o755)
            os.chmod("sales.csv", 0o644)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        data = self.folder + "/data"
        self.run("initdb", "-D", data, "-U", "woma", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses='' -c shared_buffers=512MB -c work_mem=256MB"
        self.run("pg_ctl", "-D", data, "-w", "-l", self.folder + "/log", "-o", settings, "start")

    def run(self, program, *arguments):
        """Run one of its programs as its user; what it printed."""
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        command = [os.path.join(self.programs, program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", stdin=subprocess.DEVNULL, **who)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.strip()}")
        return done.stdout

    def seconds(self, sql):
        """How long the server takes for a statement."""
        said = self.run("psql", "-X", "-h", self.folder, "-p", self.port, "-U", "woma", "-d", "postgres",
                        "-v", "ON_ERROR_STOP=1", "-c", "\\timing on", "-c", sql)
        last = [line for line in said.splitlines() if line.startswith("Time: ")][-1]
        return float(last.split()[1]) / 1e3

    def load(self):
        """COPY of the file into a table without an index."""
        columns = "id bigint, day date, region text, product text, quantity int, amount double precision, customer text"
        self.seconds(f"DROP TABLE IF EXISTS sales; CREATE TABLE sales ({columns})")
        return self.seconds(f"COPY sales FROM '{os.path.abspath('sales.csv')}' (FORMAT csv, HEADER)")

    def stop(self):
        self.run("pg_ctl", "-D", self.folder + "/data", "-m", "immediate", "stop")


def main():
    connection, postgres = duckdb.connect(), None
    connection.execute("SET enable_progress_bar = false")  # it would be printed among the replies
    for line in sys.stdin:
        request = json.loads(line)
        try:
            started = time.perf_counter()
            match request["do"]:
                case "make":
                    connection.execute(SALES)
                case "load":
                    connection.execute(
                        "COPY (SELECT * FROM read_csv('sales.csv')) TO 'sales.parquet' (FORMAT parquet)")
                case "tables":
                    connection.execute(request["sql"])
                    for name in request["names"]:
                        connection.execute(f"COPY {name} TO '{name}.parquet' (FORMAT parquet)")
                        connection.execute(f"DROP TABLE {name}")
                        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{name}.parquet')")
                case "view":
                    connection.execute("CREATE OR REPLACE VIEW sales AS FROM read_parquet('sales.parquet')")
                case "sql":
                    connection.execute(request["sql"]).fetchall()
                case "postgres-start":
                    postgres = Postgres()
                case "postgres-load":
                    print(json.dumps({"seconds": postgres.load()}), flush=True)
                    continue
                case "postgres-sql":
                    print(json.dumps({"seconds": postgres.seconds(request["sql"])}), flush=True)
                    continue
            print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)
        except Exception as error:  # the other side decides
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
    if postgres:
        postgres.stop()


main()
