"""SQL over datasets: what it answers, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from conftest import has

sys.path.insert(0, str(Path(__file__).parent.parent))

pytestmark = pytest.mark.skipif(not has("duckdb", "pyarrow"), reason="needs duckdb")

from _woma_kernel.datasets import serve  # noqa: E402

# DuckDB 1 makes several statements of PIVOT, answers PRAGMA by a SELECT, lets a SELECT turn logging
# on, and may not answer after an interrupt: there, the cell is what contains them.
IS_TWO = has("duckdb") and int(version("duckdb").split(".")[0]) >= 2
since_two = pytest.mark.skipif(not IS_TWO, reason="needs DuckDB 2")

LIMITS = {"rows": 10_000, "bytes": 1 << 20, "memory_bytes": 256 << 20, "threads": 2}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import duckdb

    made = tmp_path_factory.mktemp("datasets")
    with duckdb.connect() as connection:
        for name, query in {
            "sales": "SELECT i AS id, 'n' || i AS name, i * 1.5 AS v, DATE '2020-01-01' + i::INT "
            "AS updated_at FROM range(1000) t(i)",
            "regions": "SELECT * FROM (VALUES (0, 'North'), (1, 'South')) t(code, label)",
        }.items():
            connection.execute(f"COPY ({query}) TO '{made / name}.parquet' (FORMAT parquet)")
    return made


@pytest.fixture
def ask(folder: Path, tmp_path: Path) -> Iterator[Ask]:
    from _woma_kernel.datasets import query

    def call(sql: str, **more: Any) -> dict[str, Any]:
        output = tmp_path / "out"
        names = {path.stem: str(path) for path in folder.glob("*.parquet")}
        request = {"do": "query", "sql": sql, "datasets": names, "output": str(output), **more}
        request["limits"] = {**LIMITS, **more.get("limits", {})}
        before = sorted(os.listdir(folder))
        reply = serve(request)
        assert len(json.dumps(reply, allow_nan=False)) < 60_000
        assert sorted(os.listdir(folder)) == before
        if "error" not in reply and request.get("format", "json") == "json":
            reply["data"] = json.loads(output.read_text())
            assert output.stat().st_size == reply["bytes"]
        return reply

    yield call
    for warm in query._warm.values():
        warm.connection.close()
    query._warm.clear()


def refused(reply: dict[str, Any], code: str, said: str = "") -> None:
    assert reply.get("error", {}).get("code") == code, reply
    assert said in reply["error"]["message"] + " | " + reply["error"].get("hint", ""), reply
    assert len(reply["error"]["message"].split("\n")) <= 5


def test_answers_a_page(ask: Ask) -> None:
    reply = ask("SELECT id, name FROM sales ORDER BY id", limit=2, offset=3, count=True)
    assert reply["data"] == [[3, "n3"], [4, "n4"]]
    assert reply["columns"] == [
        {"name": "id", "type": "BIGINT"}, {"name": "name", "type": "VARCHAR"}
    ]  # fmt: skip
    assert (reply["row_count"], reply["has_more"], reply["total"]) == (2, True, 1000)
    assert (reply["limit"], reply["offset"]) == (2, 3) and "cut" not in reply
    last = ask("SELECT id FROM sales ORDER BY id", limit=10, offset=995, count=True)
    assert (last["row_count"], last["has_more"], last["total"]) == (5, False, 1000)
    beyond = ask("SELECT id FROM sales", limit=10, offset=5000, count=True)
    assert (beyond["data"], beyond["has_more"], beyond["total"]) == ([], False, 1000)
    assert ask("SELECT id FROM sales", limit=0)["data"] == []
    assert ask("SELECT id FROM sales")["row_count"] == 1000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT updated_at FROM sales WHERE name = 'DROP TABLE sales; COPY'",
        "WITH a AS (SELECT * FROM sales), b AS (SELECT max(id) AS m FROM a) SELECT * FROM b",
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 9) FROM t",
        "VALUES (1), (2)",
        "FROM sales",
        "TABLE sales",
        "DESCRIBE sales",
        "SHOW TABLES",
        "SUMMARIZE sales",
        "EXPLAIN SELECT * FROM sales",
        pytest.param("EXPLAIN ANALYZE (FORMAT json) SELECT count(*) FROM sales", marks=since_two),
        "explain (select 1)",
        "/* a */ EXPLAIN -- b\n SELECT 1",
        pytest.param("PIVOT sales ON id % 2 USING sum(v) GROUP BY updated_at", marks=since_two),
        pytest.param("SELECT * FROM (PIVOT sales ON id % 3 USING count(*))", marks=since_two),
        pytest.param("EXPLAIN PIVOT sales ON id % 2 USING sum(v)", marks=since_two),
        "-- a comment\nSELECT 1 -- another\n;;\n -- the last",
        "SELECT ';' AS semicolon;",
        "(SELECT 1)",
        "SELECT * FROM SALES s JOIN Regions r ON s.id % 2 = r.code",
    ],
)
def test_reads(ask: Ask, sql: str) -> None:
    reply = ask(sql)
    assert "error" not in reply, reply
    assert reply["row_count"] > 0 or "DROP" in sql


WRITES = {
    "COPY": ["COPY sales TO '{folder}/x.csv'", "COPY (SELECT 1) TO '{folder}/x.csv'"],
    "ATTACH": ["ATTACH '{folder}/x.db'", "ATTACH ':memory:' AS m"],
    "SET": ["SET threads = 1", "RESET threads", "USE memory", "SET VARIABLE a = 1"],
    "PRAGMA": ["PRAGMA database_list", "PRAGMA enable_profiling", "IMPORT DATABASE '{folder}'"],
    "EXPORT": ["EXPORT DATABASE '{folder}/x'"],
    "CALL": ["CALL pragma_version()", "CHECKPOINT", "FORCE CHECKPOINT"],
    "LOAD": ["INSTALL httpfs", "LOAD httpfs", "LOAD '{folder}/x.duckdb_extension'"],
    "CREATE": ["CREATE TABLE t AS SELECT 1", "CREATE OR REPLACE VIEW sales AS SELECT 1",
               "CREATE MACRO m() AS 1", "CREATE SECRET (TYPE s3)", "CREATE TEMP TABLE t (a INT)"],
    "INSERT": ["INSERT INTO sales VALUES (1)"],
    "UPDATE": ["UPDATE sales SET v = 1"],
    "DELETE": ["DELETE FROM sales", "TRUNCATE sales"],
    "DROP": ["DROP VIEW sales"],
    "ALTER": ["ALTER VIEW sales RENAME TO x"],
    "TRANSACTION": ["BEGIN", "COMMIT", "ROLLBACK"],
    "VACUUM": ["VACUUM", "ANALYZE"],
    "PREPARE": ["PREPARE p AS SELECT 1"],
    "EXECUTE": ["EXECUTE p"],
    "DETACH": ["DETACH memory"],
    "EXPLAIN": ["EXPLAIN COPY sales TO '{folder}/x.csv'",
                "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/x.csv'",
                "EXPLAIN ANALYZE (FORMAT json) COPY (SELECT 1) TO '{folder}/x.csv'",
                "EXPLAIN INSERT INTO sales VALUES (1)", "EXPLAIN ANALYZE CREATE TABLE t (a INT)"],
    "statements": ["SELECT 1; SELECT 2", "SELECT 1; DROP VIEW sales",
                   "SELECT 1;-- x\nSET threads=1"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("word", "sql"),
    [
        pytest.param(word, sql, marks=[since_two] if word in ("PRAGMA", "EXPLAIN") else [])
        for word, many in WRITES.items()
        for sql in many
    ],
)
def test_refuses_all_but_one_reading_statement(ask: Ask, folder: Path, word: str, sql: str) -> None:
    refused(ask(sql.format(folder=folder)), "not_read_only", word)
    assert ask("SELECT count(*) FROM sales")["data"] == [[1000]]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (COPY (SELECT 1) TO '{folder}/x.csv') SELECT * FROM x",
        "WITH x AS (INSERT INTO sales VALUES (1) RETURNING *) SELECT * FROM x",
        "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{folder}/x.csv') SELECT * FROM x",
        "SUMMARIZE WITH x AS (COPY (SELECT 1) TO '{folder}/x.csv') SELECT * FROM x",
        "SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{folder}/x.csv'') FROM x')",
        "SELECT 1) TO '{folder}/x.csv' --",
        "SELECT 1) LIMIT 1; COPY (SELECT 1) TO '{folder}/x.csv'; SELECT * FROM (SELECT 1",
        "SELECT * FROM query('COPY sales TO ''{folder}/x.csv''')",
    ],
)
def test_refuses_writes_inside_of_a_select(ask: Ask, folder: Path, sql: str) -> None:
    reply = ask(sql.format(folder=folder))
    assert reply["error"]["code"] in ("not_read_only", "bad_sql"), reply


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('/etc/passwd')",
        "read_text('/etc/passwd')",
        "read_blob('/etc/*')",
        "read_json('/proc/self/environ')",
        "read_parquet('{folder}/../../../../../../../etc/passwd')",
        "read_text(['{folder}/sales.parquet', '/etc/passwd'])",
        "glob('/etc/*')",
        "sniff_csv('/etc/passwd')",
        "parquet_metadata('/etc/passwd')",
        "'x.csv'",
        "'/etc/passwd.parquet'",
        "'https://example.com/x.parquet'",
        "duckdb_secrets()",
        "query_table('/etc/passwd')",
        pytest.param(
            "enable_logging('QueryLog', storage = 'file', storage_path = '/tmp/x')", marks=since_two
        ),
        "query('SELECT * FROM read_text(''/etc/passwd'')')",
        "pandas_scan(140000000000000)",
        "frames_of_the_program",
    ],
)
def test_reaches_no_file_and_no_variable(ask: Ask, folder: Path, source: str) -> None:
    import pyarrow

    frames_of_the_program = pyarrow.table({"a": [1]})
    reply = ask("SELECT * FROM " + source.format(folder=folder))
    assert reply["error"]["code"] in ("bad_sql", "unknown_dataset"), reply
    assert "root:" not in json.dumps(reply)
    assert len(frames_of_the_program) == 1


@pytest.mark.parametrize("call", ["getenv('HOME')", "current_setting('home_directory')"])
def test_tells_nothing_of_the_process(ask: Ask, call: str) -> None:
    reply = ask(f"SELECT {call} AS x")
    assert "error" in reply or not reply["data"][0][0], reply


def test_errors_say_what_is_wrong(ask: Ask) -> None:
    refused(ask("SELECT * FROM sale"), "unknown_dataset", "did you mean 'sales'?")
    refused(ask("SELECT * FROM other"), "unknown_dataset", "datasets: regions, sales")
    refused(ask("SELECT nmae FROM sales"), "bad_sql", 'near columns: "name"')
    refused(ask("SELECT id,\n\n   nmae FROM sales"), "bad_sql", "LINE 3:    nmae FROM sales\n")
    refused(ask("SELECT 'a"), "bad_sql", "unterminated")
    refused(ask("/* never closed"), "bad_sql", "unterminated")
    refused(ask("SELEC 1"), "bad_sql", "LINE 1: SELEC 1\n")
    for nothing in ("", " ; ", "-- only a comment"):
        refused(ask(nothing), "bad_sql", "no statement")
    refused(ask("SELECT st_area(1)"), "bad_sql", "extensions are not available")
    refused(ask("SELECT 1 AS " + "a" * 300_000), "bad_sql", "more than 200,000")
    refused(ask("SELECT 'x\0y'"), "bad_sql", "NUL")
    refused(ask("SELECT CAST(name AS INT) FROM sales"), "bad_sql", "n0")
    refused(ask("SELECT ?", parameters=[1, 2]), "bad_sql")
    refused(ask("SELECT 1", format="xml"), "unsupported_format", "json, csv, parquet, arrow")


def test_paths_of_the_cell_are_not_told(ask: Ask, folder: Path) -> None:
    refused(ask("SELECT * FROM read_csv('/etc/secret/x.csv')"), "bad_sql", "x.csv")
    broken = folder / "broken.parquet"
    broken.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    try:
        reply = ask("SELECT * FROM broken")
        refused(reply, "bad_file", "'broken'")
        assert str(folder) not in json.dumps(reply)
        assert ask("SELECT count(*) FROM sales")["data"] == [[1000]]
    finally:
        broken.unlink()


def test_takes_parameters(ask: Ask) -> None:
    assert ask("SELECT name FROM sales WHERE id = ?", parameters=[7])["data"] == [["n7"]]
    reply = ask("SELECT $a || $b AS x", parameters={"a": "'; DROP", "b": 1}, count=True)
    assert reply["data"] == [["'; DROP1"]] and reply["total"] == 1


VALUES = """
    SELECT 'nan'::DOUBLE AS a, 'inf'::FLOAT AS b, 12345678901234567890 AS c, 9007199254740992 AS d,
    DATE '2020-01-02' AS e, TIMESTAMP '2020-01-02 03:04:05.5' AS f, TIME '01:02:03' AS g,
    [1.5, 'nan'::DOUBLE] AS h, {'x': 1, 'y': [DATE '2020-01-01']} AS i, MAP {'k': 2} AS j,
    1.10::DECIMAL(38, 2) AS k, 0.12345678901234567890123::DECIMAL(38, 23) AS l, 'ab'::BLOB AS m,
    NULL AS n, true AS o, 'ü' AS p, TIMESTAMPTZ '2020-01-01 00:00:00+02' AS q,
    INTERVAL 1 DAY AS r, '6c1c0d0c-1111-4222-8333-444455556666'::UUID AS s
"""


def test_values_are_plain_json(ask: Ask) -> None:
    reply = ask(VALUES)
    row = dict(zip((c["name"] for c in reply["columns"]), reply["data"][0], strict=True))
    assert row == {
        "a": None, "b": None, "c": "12345678901234567890", "d": 2**53, "e": "2020-01-02",
        "f": "2020-01-02T03:04:05.500000", "g": "01:02:03", "h": [1.5, None],
        "i": {"x": 1, "y": ["2020-01-01"]}, "j": {"k": 2}, "k": 1.1,
        "l": "0.12345678901234567890123", "m": "YWI=", "n": None, "o": True, "p": "ü",
        "q": "2019-12-31T22:00:00+00:00", "r": "1 day, 0:00:00",
        "s": "6c1c0d0c-1111-4222-8333-444455556666",
    }  # fmt: skip


def test_columns_of_one_name_stay_apart(ask: Ask) -> None:
    reply = ask(
        "SELECT a.id, b.id FROM sales a JOIN sales b ON a.id = b.id + 1 ORDER BY 1", limit=1
    )
    assert [c["name"] for c in reply["columns"]] == ["id", "id_1"]
    assert reply["data"] == [[1, 0]]


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_writes_other_formats(ask: Ask, tmp_path: Path, kind: str) -> None:
    import pyarrow
    from pyarrow import parquet

    sql = "SELECT id, name, v FROM sales ORDER BY id"
    reply = ask(sql, format=kind, limit=5, offset=10, count=True)
    assert (reply["row_count"], reply["has_more"], reply["total"]) == (5, True, 1000)
    path = tmp_path / "out"
    assert reply["bytes"] == path.stat().st_size
    if kind == "csv":
        rows = list(csv.DictReader(path.read_text().splitlines()))
    elif kind == "parquet":
        rows = parquet.read_table(path).to_pylist()
    else:
        rows = pyarrow.ipc.open_file(path.read_bytes()).read_all().to_pylist()
    assert [int(row["id"]) for row in rows] == [10, 11, 12, 13, 14]
    assert rows[0]["name"] == "n10" and float(rows[0]["v"]) == 15.0
    whole = ask(sql, format=kind, limit=5000, count=True)
    assert "error" not in whole, whole
    assert (whole["row_count"], whole["has_more"], whole["total"]) == (1000, False, 1000)
    assert ask("SELECT id FROM sales WHERE id < 0", format=kind)["row_count"] == 0


def test_writes_times_as_csv(ask: Ask, tmp_path: Path) -> None:
    moment = "TIMESTAMP '2020-01-02 03:04:05'"
    sql = f"SELECT {moment} AS a, {moment}::TIMESTAMPTZ AS b, {moment}::TIME AS c, {moment}::DATE AS d"
    assert ask(sql, format="csv")["row_count"] == 1
    row = next(csv.DictReader((tmp_path / "out").read_text().splitlines()))
    assert datetime.fromisoformat(row["a"]) == datetime(2020, 1, 2, 3, 4, 5)
    assert row["b"].startswith("2020-01-02 03:04:05") and row["b"].endswith("Z")
    assert (row["c"][:8], row["d"]) == ("03:04:05", "2020-01-02")


def test_writes_any_value_as_csv(ask: Ask, tmp_path: Path) -> None:
    assert ask(VALUES, format="csv")["row_count"] == 1
    row = next(csv.DictReader((tmp_path / "out").read_text().splitlines()))
    assert (row["h"], row["i"], row["o"], row["n"]) == (
        "[1.5,null]", '{"x":1,"y":["2020-01-01"]}', "true", ""
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "arrow"])
def test_output_ends_at_its_number_of_rows(ask: Ask, kind: str) -> None:
    reply = ask("SELECT * FROM sales", format=kind, limit=500, limits={"rows": 20})
    assert (reply["row_count"], reply["has_more"], reply["cut"]) == (20, True, "rows")


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "arrow"])
@pytest.mark.parametrize("nested", ["", ", [id] AS more"])
def test_output_ends_at_its_number_of_bytes(ask: Ask, kind: str, nested: str) -> None:
    sql = f"SELECT id, hash(id) AS h, repeat('x', 30) || id AS t{nested} FROM sales"
    reply = ask(sql, format=kind, limit=1000, limits={"bytes": 20_000})
    assert 0 < reply["row_count"] < 1000 and reply["bytes"] <= 20_000
    assert (reply["has_more"], reply["cut"]) == (True, "bytes")


def test_columns_that_no_reply_can_name(ask: Ask) -> None:
    wide = ", ".join(f"{n} AS {'long_name_' * 5}{n}" for n in range(800))
    refused(ask(f"SELECT {wide}"), "too_large", "800 columns")
    assert ask(f"SELECT id FROM (SELECT 1 AS id, {wide})")["row_count"] == 1


def test_the_engine_is_warm_and_sees_changes(ask: Ask, folder: Path) -> None:
    import duckdb

    from _woma_kernel.datasets import query

    assert ask("SELECT count(*) FROM sales")["data"] == [[1000]]
    warm = next(iter(query._warm.values())).connection
    new = folder / "new.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS a) TO '{new}' (FORMAT parquet)")
        assert ask("SELECT a FROM new")["data"] == [[1]]
        connection.execute(f"COPY (SELECT 'x' AS b, 2 AS c) TO '{new}.part' (FORMAT parquet)")
    Path(f"{new}.part").rename(new)
    assert ask("SELECT * FROM new")["data"] == [["x", 2]]
    new.unlink()
    refused(ask("SELECT * FROM new"), "unknown_dataset")
    assert next(iter(query._warm.values())).connection is warm and len(query._warm) == 1


@since_two
def test_pivots_leave_nothing_behind(ask: Ask) -> None:
    ask("PIVOT sales ON id % 2 USING sum(v)")
    found = ask("SELECT count(*) FROM duckdb_types() WHERE type_name LIKE '%pivot%'")
    assert found["data"] == [[0]]


def test_many_datasets_are_found_by_name(ask: Ask, folder: Path, tmp_path: Path) -> None:
    names = {f"t{i}": str(folder / "sales.parquet") for i in range(500)}
    assert ask("SELECT count(*) FROM t321, t7", datasets=names)["data"] == [[1_000_000]]


def test_too_much_memory_is_an_answer(ask: Ask) -> None:
    sql = "SELECT list(i) FROM range(200000000) t(i)"
    refused(ask(sql, limits={"memory_bytes": 64 << 20}), "out_of_memory")
    assert ask("SELECT 1 AS one")["data"] == [[1]]


def test_spills_within_its_bounds(ask: Ask) -> None:
    inner = "SELECT DISTINCT hash(i), repeat('x', 50) || i FROM range(900000) t(i)"
    sql = f"SELECT count(*) FROM ({inner})"
    small = {"memory_bytes": 80 << 20, "temp_bytes": 1 << 20}
    refused(ask(sql, limits=small), "out_of_memory")
    assert ask(sql, limits={**small, "temp_bytes": 2 << 30})["data"] == [[900_000]]


# None of them needs memory: one that does may reach its limit before the signal comes.
ENDLESS = [
    "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t",
    "SELECT count(*) FROM range(1000000000000)",
    "SELECT sum(hash(a.id, b.id, c.range)) FROM sales a, sales b, range(1000000000) c",
    "SELECT max(a.id) FROM sales a, sales b, sales c, sales d, sales e ORDER BY random()",
]


@since_two
@pytest.mark.parametrize("sql", ENDLESS)
@pytest.mark.parametrize("number", [signal.SIGINT, 16])
def test_a_signal_ends_what_has_no_end(ask: Ask, sql: str, number: int) -> None:
    from _woma_kernel.datasets import engine

    # A shell starts programs in the background with SIGINT ignored.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        16: signal.signal(16, lambda *_: None),
    }
    began = threading.Event()
    real = engine.run

    def run(connection: Any, work: Callable[[], Any], look: Any = None) -> Any:
        began.set()
        return real(connection, work, look)

    def stop() -> None:
        began.wait()
        while not ended.wait(0.2):
            os.kill(os.getpid(), number)

    ended = threading.Event()
    stopper = threading.Thread(target=stop)
    engine.run = run
    stopper.start()
    try:
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                pytest.fail(f"the statement ended by itself: {ask(sql)}")
        else:
            refused(ask(sql), "out_of_memory")
    finally:
        engine.run = real
        ended.set()
        began.set()
        _joined(stopper)
        for one, handler in before.items():
            signal.signal(one, handler)
    assert ask("SELECT 1 AS one")["data"] == [[1]]


def test_an_error_of_tidying_up_does_not_hide_an_interrupt(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from _woma_kernel.datasets import engine, query

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    def broken(_: Any) -> None:
        raise RuntimeError("Query interrupted")

    ask("SELECT 1 AS one")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", interrupted)
        patch.setattr(engine, "settle", broken)
        with pytest.raises(KeyboardInterrupt):
            ask("SELECT 2 AS two")
    assert not query._warm  # the next statement gets another engine
    assert ask("SELECT 3 AS three")["data"] == [[3]]


def _joined(thread: threading.Thread) -> None:
    """A second signal may still be on its way."""
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt:
            continue
