"""The name `datasets`, `%sql` and `%%sql` in sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Session, has

pytestmark = pytest.mark.skipif(not has("duckdb", "pandas", "pyarrow"), reason="needs duckdb")

USE_FOLDER = "from _woma_kernel.datasets import session as _s; _s.FOLDER = {!r}"


@pytest.fixture
def tables(session: Session, tmp_path: Path) -> Session:
    """A session whose datasets are `sales` and `Regions`."""
    import duckdb

    folder = tmp_path / "shared datasets"
    folder.mkdir()
    with duckdb.connect() as connection:
        for name, query in {
            "sales": "SELECT i AS id, ['n', 's'][1 + i % 2] AS region, i * 1.5 AS amount "
            "FROM range(10) t(i)",
            "Regions": "SELECT * FROM (VALUES ('n', 'North'), ('s', 'South')) t(code, label)",
        }.items():
            connection.execute(f"COPY ({query}) TO '{folder / name}.parquet' (FORMAT parquet)")
    assert session.run(USE_FOLDER.format(str(folder))).status == "completed"
    return session


def result(session: Session, source: str) -> object:
    reply = session.run(source)
    assert reply.status == "completed", reply.done
    return reply.done["result"]["json"] if reply.done["result"] else None


def text(session: Session, source: str) -> str:
    reply = session.run(source)
    assert reply.status == "completed", reply.done
    return reply.done["result"]["text"]


def test_a_dataset_is_a_frame_by_name(tables: Session) -> None:
    assert result(tables, "float(datasets['sales'].amount.sum())") == 67.5
    assert result(tables, "type(datasets['SALES']).__module__.split('.')[0]") == "pandas"
    assert result(tables, "datasets.sales.shape") == [10, 3]
    assert result(tables, "datasets.arrow('sales').num_rows") == 10
    assert result(tables, "import pandas as pd; len(pd.read_parquet(datasets.path('sales')))") == 10


def test_datasets_lists_and_shows_itself(tables: Session) -> None:
    assert result(tables, "list(datasets)") == ["Regions", "sales"]
    assert result(tables, "'sales' in datasets, 'x' in datasets, len(datasets)") == [True, False, 2]
    assert text(tables, "datasets") == (
        "Regions: 2 rows of code, label\nsales: 10 rows of id, region, amount"
    )
    listed = result(tables, "datasets.list()")
    assert [(one["name"], one["rows"]) for one in listed] == [("Regions", 2), ("sales", 10)]
    assert listed[1]["columns"] == ["id", "region", "amount"] and listed[1]["bytes"] > 0


def test_an_unknown_dataset_names_the_others(tables: Session) -> None:
    reply = tables.run("datasets['sale']")
    assert reply.error["name"] == "KeyError"
    assert reply.error["message"].startswith(
        "there is no dataset 'sale'; did you mean 'sales'? datasets: Regions, sales"
    )
    reply = tables.run("datasets.load_iris()")
    assert reply.error["name"] == "AttributeError"
    assert "from sklearn import datasets" in reply.error["message"]


def test_nothing_is_there_without_datasets(session: Session) -> None:
    assert "no datasets" in text(session, "datasets")
    assert result(session, "len(datasets)") == 0
    assert result(session, "x = %sql SELECT 1 AS one\nx.one.tolist()") == [1]


def test_the_users_own_name_comes_first(tables: Session) -> None:
    assert result(tables, "datasets = [1, 2]; datasets") == [1, 2]
    assert result(tables, "del datasets; len(datasets)") == 2
    tables.run("open('datasets.py', 'w').write('kind = \"mine\"')")
    assert result(tables, "import datasets; datasets.kind") == "mine"


def test_an_import_fails_as_before(tables: Session) -> None:
    if has("datasets"):
        pytest.skip("the package is installed")
    assert tables.run("import datasets").error["name"] == "ModuleNotFoundError"


def test_the_name_is_no_variable(tables: Session) -> None:
    reply = tables.run("len(datasets)")
    assert all(one["name"] != "datasets" for one in reply.done["variables"])
    assert "datasets" not in tables.checkpoint().saved


def test_a_reference_survives_a_checkpoint(tables: Session) -> None:
    tables.run("mine = datasets")
    saved = tables.checkpoint()
    tables.run("del mine")
    assert tables.restore(saved.data)["failed"] == []
    assert result(tables, "len(mine)") == 2


def test_sql_joins_datasets_and_frames(tables: Session) -> None:
    tables.run("import pandas as pd\nweights = pd.DataFrame({'code': ['n', 's'], 'w': [1, 10]})")
    query = (
        "SELECT label, sum(amount * w) AS total FROM sales JOIN regions ON region = code "
        "JOIN weights USING (code) GROUP BY label ORDER BY label"
    )
    assert result(tables, f"datasets.sql('{query}').total.tolist()") == [30.0, 375.0]
    assert (
        result(
            tables,
            "def f(frame):\n    return datasets.sql('SELECT count(*) c FROM frame')\n"
            "int(f(weights).c[0])",
        )
        == 2
    )


def test_sql_takes_parameters(tables: Session) -> None:
    found = "datasets.sql('SELECT count(*) c FROM sales WHERE id >= $low', low=7).c.tolist()"
    assert result(tables, found) == [3]
    assert result(
        tables, "low = 8\nx = %sql SELECT count(*) c FROM sales WHERE id >= $low\nx.c.tolist()"
    ) == [2]


def test_cell_magic_shows_and_assigns(tables: Session) -> None:
    reply = tables.run(
        "%%sql\nSELECT region, sum(amount) AS total FROM sales GROUP BY 1 ORDER BY 1"
    )
    shown = [d["body"]["data"] for d in reply.displays if d["body"]["role"] == "result"]
    assert "37.5" in shown[0]["text/plain"] and "text/html" in shown[0]
    for head in ("%%sql top <<", "%%sql top", "%%sql duckdb:// top <<"):
        tables.run("top = None")
        assert tables.run(f"{head}\nSELECT max(id) AS m FROM sales").status == "completed"
        assert result(tables, "top.m.tolist()") == [9], head


def test_line_magic_returns_and_assigns(tables: Session) -> None:
    assert result(tables, "x = %sql SELECT min(id) AS m FROM sales\nx.m.tolist()") == [0]
    assert result(tables, "%sql y << SELECT max(id) AS m FROM sales\ny.m.tolist()") == [9]
    assert tables.run("%load_ext sql").err == ""


def test_tables_of_the_session_stay(tables: Session) -> None:
    assert tables.run("%%sql\nCREATE TABLE big AS SELECT * FROM sales WHERE id > 5").error is None
    assert result(tables, "x = %sql SELECT count(*) c FROM big\nx.c.tolist()") == [4]


def test_a_frame_comes_before_a_dataset_of_its_name(tables: Session) -> None:
    count = "datasets.sql('SELECT count(*) c FROM sales').c.tolist()"
    assert result(tables, count) == [10]
    assert result(tables, f"sales = datasets['sales'].head(3)\n{count}") == [3]
    assert result(tables, f"del sales\n{count}") == [10]


def test_a_replaced_dataset_is_seen(tables: Session, tmp_path: Path) -> None:
    import duckdb

    count = "datasets.sql('SELECT count(*) c FROM sales').c.tolist()"
    assert result(tables, count) == [10]
    folder = tmp_path / "shared datasets"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS other) TO '{folder}/.new' (FORMAT parquet)")
    (folder / ".new").rename(folder / "sales.parquet")
    assert result(tables, count) == [1]
    (folder / "sales.parquet").unlink()
    reply = tables.run(count)
    assert reply.error["name"].endswith("CatalogException")
    assert reply.error["message"].endswith("datasets: Regions")


def test_mistakes_in_sql_are_errors_of_the_run(tables: Session) -> None:
    reply = tables.run("%%sql\nSELECT nothing FROM sales")
    assert reply.status == "raised" and reply.error["name"].endswith("BinderException")
    assert "_woma_kernel" not in "\n".join(reply.error["traceback"])
    assert "pandas.read_sql" in tables.run("%sql postgresql://x SELECT 1").error["message"]
    assert "has no option --save" in tables.run("%%sql --save x\nSELECT 1").error["message"]


def test_an_interrupt_ends_sql_and_keeps_the_session(tables: Session) -> None:
    tables.run("kept = 5")
    reply = tables.run(
        "print('go')\n"
        "%sql WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT max(i) FROM t",
        on_output=tables.interrupt,
    )
    assert reply.status == "interrupted"
    assert result(tables, "kept") == 5
    assert result(tables, "x = %sql SELECT count(*) c FROM sales\nx.c.tolist()") == [10]


def spooled(tmp_path: Path, name: str) -> dict[str, object]:
    folder = tmp_path / ".woma" / "datasets"
    assert sorted(p.name for p in folder.iterdir()) == [f"{name}.json", f"{name}.parquet"]
    return json.loads((folder / f"{name}.json").read_text())


def test_registers_a_frame(session: Session, tmp_path: Path) -> None:
    reply = session.run(
        "import pandas as pd\n"
        "days = pd.to_datetime(['2020-01-01', None])\n"
        "df = pd.DataFrame({'day': days, 'n': [1, 2], 3: ['a', None]})\n"
        "datasets.register('mine', df)"
    )
    assert reply.out == "mine: 2 rows, 3 columns; a dataset once this run has ended\n", reply.done
    about = spooled(tmp_path, "mine")
    assert (about["name"], about["rows"], about["format"]) == ("mine", 2, "table")
    assert about["columns"] == [
        {"name": "day", "type": "TIMESTAMP", "nullable": True},
        {"name": "n", "type": "BIGINT", "nullable": False},
        {"name": "3", "type": "VARCHAR", "nullable": True},
    ]
    assert result(session, "datasets['mine'].n.tolist()") == [1, 2]


def test_registers_a_file_and_other_tables(session: Session, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a;b\n1;x\n2;y\n")
    assert session.run("datasets.register('from_file', 'in.csv')").error is None
    about = spooled(tmp_path, "from_file")
    assert (about["rows"], about["delimiter"]) == (2, ";")
    for number, data in enumerate(
        (
            "{'a': [1, 2]}",
            "[{'a': 1}, {'a': 2}]",
            "__import__('pandas').Series([1, 2], name='a')",
            "__import__('pyarrow').table({'a': [1, 2]})",
            "__import__('duckdb').sql('SELECT unnest([1, 2]) AS a')",
        )
    ):
        assert session.run(f"datasets.register('t{number}', {data})").error is None, data
        assert result(session, f"datasets['t{number}'].a.tolist()") == [1, 2], data


def test_refuses_what_cannot_be_registered(session: Session, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    for call, said in {
        "datasets.register('no name', {})": "cannot be the name of a dataset",
        "datasets.register('../x', {'a': [1]})": "cannot be the name of a dataset",
        "datasets.register('x', 5)": "int is not a table",
        "datasets.register('x', 'bad.parquet')": "bad.parquet cannot be read",
        "datasets.register('x', 'none.csv')": "none.csv cannot be opened",
    }.items():
        reply = session.run(call)
        assert reply.error["name"] == "ValueError" and said in reply.error["message"], call
    folder = tmp_path / ".woma" / "datasets"
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_guard_without_duckdb_confines_sql(tables: Session, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    tables.guard = {
        "imports": [["pandas"]], "builtins": [], "attributes": [], "commands": False,
        "annotate": False, "names": {},
    }  # fmt: skip
    assert result(tables, "datasets.sql('SELECT count(*) c FROM sales').c.tolist()") == [10]
    reply = tables.run("datasets.sql(\"SELECT * FROM read_csv('secret.csv')\")")
    assert reply.error["name"].endswith("PermissionException"), reply.error


def test_costs_nothing_at_the_start(session: Session) -> None:
    loaded = "sorted(m for m in __import__('sys').modules if m.startswith('_woma_kernel.datasets'))"
    assert result(session, loaded) == ["_woma_kernel.datasets", "_woma_kernel.datasets.name"]
    assert result(session, "'duckdb' in __import__('sys').modules") is False
