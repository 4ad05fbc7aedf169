"""Files of every format as datasets: types, encodings, names, bad rows, notes."""

from __future__ import annotations

import datetime
import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import has

sys.path.insert(0, str(Path(__file__).parent.parent))

pytestmark = pytest.mark.skipif(not has("duckdb"), reason="needs duckdb")

from _woma_kernel.datasets import serve  # noqa: E402

Load = Callable[..., dict[str, Any]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a file with these contents; `rows` of the reply are all rows."""

    def call(name: str, contents: str | bytes | None = None, **more: Any) -> dict[str, Any]:
        path, output = tmp_path / name, tmp_path / "out.parquet"
        if contents is not None:
            path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        limits = {"memory_bytes": 512 << 20, "threads": 2, **more.pop("limits", {})}
        request = {"do": "load", "path": str(path), "name": "x", "output": str(output), **more}
        reply = serve({**request, "limits": limits})
        assert len(json.dumps(reply, allow_nan=False).encode()) < 60_000
        assert not (tmp_path / "out.parquet.parts").exists()
        assert str(tmp_path) not in json.dumps(reply)
        if "error" in reply:
            assert not output.exists()
            return reply
        import duckdb

        with duckdb.connect() as connection:
            read = connection.execute("SELECT * FROM read_parquet(?)", [str(output)])
            reply["data"] = read.fetchall()
        assert reply["rows"] == len(reply["data"]) and reply["bytes"] == output.stat().st_size
        assert reply["column_count"] >= len(reply["columns"])
        return reply

    return call


def types(reply: dict[str, Any]) -> dict[str, str]:
    assert "error" not in reply, reply
    return {column["name"]: column["type"] for column in reply["columns"]}


def refused(reply: dict[str, Any], code: str, said: str = "") -> None:
    assert reply.get("error", {}).get("code") == code, reply
    assert said in reply["error"]["message"] + " | " + reply["error"].get("hint", ""), reply


CSV = 'id,day,at,amount,ok,name\n1,2020-01-31,2020-01-31 10:00:00,1.5,true,a\n2,,,,false,"b, c"\n'


def test_types_of_a_csv_are_found(load: Load) -> None:
    reply = load("sales.csv", CSV)
    assert types(reply) == {
        "id": "BIGINT", "day": "DATE", "at": "TIMESTAMP", "amount": "DOUBLE", "ok": "BOOLEAN",
        "name": "VARCHAR",
    }  # fmt: skip
    assert [c["nullable"] for c in reply["columns"]] == [False, True, True, True, False, False]
    assert (reply["format"], reply["delimiter"], reply["encoding"]) == ("csv", ",", "utf-8")
    assert reply["preview"][0] == {
        "id": 1, "day": "2020-01-31", "at": "2020-01-31T10:00:00", "amount": 1.5, "ok": True,
        "name": "a",
    }  # fmt: skip
    assert reply["bad_rows"] == {"count": 0, "samples": []}
    assert reply["notes"] == [] and reply["renamed"] == {}


@pytest.mark.parametrize(
    ("name", "text", "separator"),
    [
        ("a.csv", "a;b\n1;x\n2;y\n", ";"),
        ("a.tsv", "a\tb\n1\tx\n2\ty\n", "\t"),
        ("a.txt", "a|b\n1|x\n2|y\n", "|"),
        ("a.csv", "a,b\r\n1,x\r\n2,y\r\n", ","),
        ("noending", "a,b\n1,x\n2,y\n", ","),
        ("a.csv", "Title of 2020\n\na,b\n1,x\n2,y\n", ","),
        ("a.csv", "a,b\n1,x\n\n2,y\n\n", ","),
    ],
)
def test_separators_are_found(load: Load, name: str, text: str, separator: str) -> None:
    reply = load(name, text)
    assert (types(reply), reply["delimiter"]) == ({"a": "BIGINT", "b": "VARCHAR"}, separator)
    assert reply["data"] == [(1, "x"), (2, "y")]


def test_the_caller_may_say_how_a_file_is_written(load: Load) -> None:
    assert load("a.csv", "a:b\n1:2\n", delimiter=":")["data"] == [(1, 2)]
    reply = load("a.csv", "1,2\n3,4\n", header=True)
    assert types(reply) == {"1": "BIGINT", "2": "BIGINT"} and reply["data"] == [(3, 4)]
    reply = load("a.csv", "a,b\nc,d\n", header=False)
    assert reply["data"] == [("a", "b"), ("c", "d")]
    assert list(types(reply)) == ["column_1", "column_2"]
    assert load("a.dat", "a\tb\n1\t2\n", format="tsv")["data"] == [(1, 2)]
    refused(load("a.csv", "a\n1\n", delimiter="abcdef"), "bad_file", "delimiter")
    refused(load("a.csv", "a\n1\n", encoding="klingon"), "bad_file", "klingon")
    refused(load("a.csv", "a\n1\n", format="docx"), "unsupported_format", "formats: csv")


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings_are_found(load: Load, encoding: str, told: str) -> None:
    reply = load("a.csv", "naïve,price\n“café”,1\nübergroß,2\n".encode(encoding))
    assert reply["encoding"] == told
    assert reply["data"] == [("“café”", 1), ("übergroß", 2)]
    assert list(types(reply)) == ["naïve", "price"]


def test_latin_1_and_a_named_encoding(load: Load) -> None:
    reply = load("a.csv", "name\ncafé\nnaïf\n".encode("latin-1"))
    assert (reply["encoding"], reply["data"]) == ("latin-1", [("café",), ("naïf",)])
    assert "read as latin-1" in reply["notes"][0]
    reply = load("a.csv", "имя,n\nИван,1\n".encode("cp1251"), encoding="windows-1251")
    assert reply["data"] == [("Иван", 1)]


def test_a_late_byte_that_is_not_utf_8_is_a_bad_row(load: Load) -> None:
    text = "a,b\n" + "1,plain text\n" * 120_000
    reply = load("a.csv", text.encode() + b"2,caf\xe9\n3,end\n")
    assert reply["rows"] == 120_001 and reply["bad_rows"]["count"] == 1
    assert reply["bad_rows"]["samples"][0]["line"] == 120_002


def test_names_are_made_unique_and_told(load: Load) -> None:
    reply = load("a.csv", " id ,ID,,name,name,a\tb\n1,2,3,4,5,6\n", delimiter=",")
    assert list(types(reply)) == ["id", "ID_2", "column_3", "name", "name_2", "a b"]
    assert reply["renamed"] == {
        " id ": "id", "ID": "ID_2", "(column 3)": "column_3", "name": "name_2", "a\tb": "a b"
    }  # fmt: skip


def test_bad_rows_are_left_out_and_told(load: Load) -> None:
    reply = load("a.csv", "a,b,c\n1,x,2020-01-01\n2,y\n3,z,2020-01-01,more\n4,w,2020-01-03\n")
    assert [row[0] for row in reply["data"]] == [1, 4]
    assert reply["bad_rows"]["count"] == 2
    assert [one["line"] for one in reply["bad_rows"]["samples"]] == [3, 4]
    assert reply["bad_rows"]["samples"][0]["text"] == "2,y"
    assert "3" in reply["bad_rows"]["samples"][0]["reason"]


def test_a_late_value_of_another_type_is_a_bad_row(load: Load) -> None:
    text = "a,b\n" + "".join(f"{i},x\n" for i in range(30_000)) + "oops,y\n7,z\n"
    reply = load("a.csv", text)
    assert types(reply)["a"] == "BIGINT" and reply["rows"] == 30_001
    assert reply["bad_rows"]["samples"][0]["line"] == 30_002
    assert "oops" in reply["bad_rows"]["samples"][0]["text"]


def test_many_values_of_another_type_make_a_column_text(load: Load) -> None:
    text = "a,b\n" + "".join(f"{i},x\n" for i in range(30_000)) + "oops,y\n" * 500
    reply = load("a.csv", text)
    assert types(reply)["a"] == "VARCHAR" and reply["rows"] == 30_500
    assert reply["bad_rows"]["count"] == 0 and "a is text: 500 values" in reply["notes"][0]


def test_digits_are_not_lost(load: Load) -> None:
    reply = load("a.csv", "zip,id,phone,n\n01234,12345678901234567890,+4912,1\n94110,2,+4913,2\n")
    assert types(reply) == {"zip": "VARCHAR", "id": "VARCHAR", "phone": "VARCHAR", "n": "BIGINT"}
    assert reply["data"][0] == ("01234", "12345678901234567890", "+4912", 1)


def test_leading_zeros_beyond_the_first_rows_are_seen(load: Load) -> None:
    text = "n,zip\n" + "".join(f"{i},{90000 + i % 9999}\n" for i in range(150_000))
    text += "".join(f"{i},0{1000 + i % 999}\n" for i in range(20_000))
    reply = load("a.csv", text)
    assert types(reply) == {"n": "BIGINT", "zip": "VARCHAR"}
    assert "zip has leading zeros and stays text" in reply["notes"]
    assert reply["data"][-1][1].startswith("01")


def test_numbers_as_people_write_them(load: Load) -> None:
    reply = load("a.csv", "a;b;c\n1,5;x;01.02.2020\n2;y;15.02.2020\n")
    assert reply["data"][0] == (1.5, "x", datetime.date(2020, 2, 1))
    assert any("1,5" in note for note in reply["notes"])
    assert "dates read as %d.%m.%Y" in reply["notes"]
    assert load("a.csv", 'a,b\n"1,234",x\n"5,678,901",y\n')["data"] == [(1234, "x"), (5678901, "y")]
    reply = load("a.csv", "a,b,c\n1,x,1.5\nN/A,NA,-\n3,,2\n")
    assert reply["data"] == [(1, "x", 1.5), (None, "NA", None), (3, None, 2.0)]
    assert "'-', 'N/A', 'NA' read as null in a, c" in reply["notes"]


def test_a_word_for_null_that_is_not_alone_stays_text(load: Load) -> None:
    text = "a\n1\nN/A\n" + "5\n" * 40_000 + "other\n"
    reply = load("a.csv", text)
    assert types(reply) == {"a": "VARCHAR"} and reply["data"][-1] == ("other",)


def test_quotes_hold_lines_and_separators(load: Load) -> None:
    reply = load("a.csv", 'a,b\n1,"two\nlines"\n2,"x ""q"", y"\n')
    assert reply["data"] == [(1, "two\nlines"), (2, 'x "q", y')]
    text = "a,b\n" + "1,x\n" * 300_000 + '2,"late, quoted"\n'
    assert load("a.csv", text)["data"][-1] == (2, "late, quoted")


def test_a_packed_csv(load: Load) -> None:
    assert load("a.csv.gz", gzip.compress(b"a,b\n1,x\n"))["data"] == [(1, "x")]
    assert load("a.csv", gzip.compress(b"a,b\n1,x\n"))["data"] == [(1, "x")]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.json", '[{"a": 1, "b": "x"}, {"a": 2, "c": [1]}]', [(1, "x", None), (2, None, [1])]),
        ("a.json", '{"a": 1}\n{"a": 2}\n', [(1,), (2,)]),
        ("a.ndjson", '{"a": 1}\n{"a": 2}\n', [(1,), (2,)]),
        ("a.jsonl", '\ufeff{"a": 1}\n{"a": 2}\n', [(1,), (2,)]),
        ("a.json", '{"ok": true, "data": [{"a": 1}, {"a": 2}]}', [(1,), (2,)]),
        ("a.json", '{"a": [1, 2], "b": ["x", "y"]}', [(1, "x"), (2, "y")]),
        ("a.json", '[{"d": "2020-01-01"}]', [(datetime.date(2020, 1, 1),)]),
        ("a.json", '[{"s": {"x": 1}}]', [({"x": 1},)]),
        ("a", '[{"a": 1}]', [(1,)]),
    ],
)
def test_json_in_its_forms(load: Load, name: str, text: str, rows: list[Any]) -> None:
    assert load(name, text)["data"] == rows


def test_bad_lines_of_json_are_told(load: Load) -> None:
    reply = load("a.ndjson", '{"a": 1}\n{"a": oops}\n{"a": 3}\n')
    assert reply["data"] == [(1,), (3,)]
    assert reply["bad_rows"]["count"] == 1
    sample = reply["bad_rows"]["samples"][0]
    assert (sample["line"], sample["text"]) == (2, '{"a": oops}')
    refused(load("a.json", '[{"a": 1}, {"a"'), "bad_file", "not valid JSON")
    text = "".join(f'{{"a": {i}}}\n' for i in range(30_000)) + '{"a": "late"}\n'
    assert load("a.ndjson", text)["data"][-1] == ("late",)


def test_parquet_is_written_anew(load: Load, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"a": [1, None], "A": ["x", "y"], " ": [[1], [2]]})
    parquet.write_table(table, tmp_path / "in.parquet")
    reply = load("in.parquet")
    assert reply["data"] == [(1, "x", [1]), (None, "y", [2])]
    assert list(types(reply)) == ["a", "A_2", "column_3"]
    assert [c["nullable"] for c in reply["columns"][:2]] == [True, False]


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sales"
    sheet.append(["Report of 2020"])
    sheet.append([])
    sheet.append(["id", "day", "at", "amount", "ok", "name", "mixed", "n", None, "id"])
    for i in range(30):
        sheet.append([
            i, datetime.date(2020, 1, 1 + i), datetime.datetime(2020, 1, 1, 12, i), i * 1.5,
            i % 2 == 0, f'n, "{i}"\nline' if i == 3 else f"n{i}", i if i % 2 else f"t{i}",
            i if i % 5 else "N/A", None, -i,
        ])  # fmt: skip
    sheet["D6"] = "#DIV/0!"
    other = book.create_sheet("Other one")
    other.append(["x", "y"])
    other.append([1, "z"])
    book.create_sheet("Empty")
    book.save(tmp_path / "book.xlsx")
    return tmp_path / "book.xlsx"


def test_a_sheet_keeps_the_types_of_its_cells(load: Load, workbook: Path) -> None:
    reply = load("book.xlsx")
    assert types(reply) == {
        "id": "BIGINT", "day": "DATE", "at": "TIMESTAMP", "amount": "DOUBLE", "ok": "BOOLEAN",
        "name": "VARCHAR", "mixed": "VARCHAR", "n": "BIGINT", "id_2": "BIGINT",
    }  # fmt: skip
    row = reply["data"][3]
    assert row[:4] == (3, datetime.date(2020, 1, 4), datetime.datetime(2020, 1, 1, 12, 3), 4.5)
    assert row[4:] == (False, 'n, "3"\nline', "3", 3, -3)
    assert reply["data"][0][7] is None and reply["data"][2][3] is None
    assert reply["sheet"] == "Sales" and reply["format"] == "xlsx"
    notes = " | ".join(reply["notes"])
    for said in (
        "'Other one'",
        "above the header",
        "mixed has values",
        "N/A",
        "empty column",
        "#DIV",
    ):
        assert said in notes, notes


def test_a_sheet_is_chosen(load: Load, workbook: Path) -> None:
    for sheet in ("Other one", "other ONE", "2", 2):
        assert load("book.xlsx", sheet=sheet)["data"] == [(1, "z")], sheet
    refused(load("book.xlsx", sheet="None such"), "bad_file", "'Sales', 'Other one'")
    refused(load("book.xlsx", sheet="Empty"), "no_rows")
    workbook.rename(workbook.with_suffix(".xlsm"))
    assert load("book.xlsm")["format"] == "xlsm"


def test_a_sheet_without_a_header(load: Load, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in ([1, 2, "x"], [3, 4, "y"]):
        book.active.append(row)
    book.save(tmp_path / "book.xlsx")
    reply = load("book.xlsx")
    assert reply["data"] == [(1, 2, "x"), (3, 4, "y")]
    assert "no header was found; columns are numbered" in reply["notes"]
    assert load("book.xlsx", header=True)["data"] == [(3, 4, "y")]


def test_an_old_workbook(load: Load) -> None:
    pytest.importorskip("xlrd")
    reply = load("old.xls", (Path(__file__).parent / "data" / "old.xls").read_bytes())
    assert types(reply) == {"id": "BIGINT", "day": "DATE", "price": "DOUBLE", "name": "VARCHAR"}
    assert reply["data"][0] == (1, datetime.date(2020, 1, 31), 1.5, "first")
    assert (reply["format"], reply["sheet"]) == ("xls", "Prices")


@pytest.fixture
def document(tmp_path: Path) -> Callable[[list[list[list[str]]]], None]:
    pytest.importorskip("pdfplumber")
    platypus = pytest.importorskip("reportlab.platypus")
    styles = pytest.importorskip("reportlab.lib.styles").getSampleStyleSheet()

    def make(tables: list[list[list[str]]]) -> None:
        story: list[Any] = [platypus.Paragraph("A report without much text", styles["Title"])]
        for table in tables:
            grid = [("GRID", (0, 0), (-1, -1), 1, "black")]
            story += [platypus.Table(table, style=grid, repeatRows=1), platypus.PageBreak()]
        platypus.SimpleDocTemplate(str(tmp_path / "report.pdf")).build(story)

    return make


def test_tables_of_a_pdf(load: Load, document: Callable[..., None]) -> None:
    long = [["id", "name", "price"]] + [[str(i), f"item {i}", f"{i}.25"] for i in range(60)]
    document([long, [["x", "y"], ["1", "2"]]])
    reply = load("report.pdf")
    assert types(reply) == {"id": "BIGINT", "name": "VARCHAR", "price": "DOUBLE"}
    assert reply["rows"] == 60 and reply["data"][59] == (59, "item 59", 59.25)
    assert "1 table with other columns left out; name the pages" in reply["notes"]
    assert load("report.pdf", pages="3")["data"] == [(1, 2)]
    assert load("report.pdf", pages="1")["rows"] < 60
    refused(load("report.pdf", pages="99"), "bad_file", "3 pages")
    refused(load("report.pdf", pages="x"), "bad_file", "such as 1-3,7")


def test_a_pdf_without_tables(load: Load, document: Callable[..., None]) -> None:
    document([])
    refused(load("report.pdf"), "no_rows", "no table was found")


@pytest.mark.parametrize(
    ("name", "kind"), [("book.csv", "xlsx"), ("book.xls", "xlsx"), ("book", "xlsx")]
)
def test_contents_decide_over_the_name(load: Load, workbook: Path, name: str, kind: str) -> None:
    workbook.rename(workbook.with_name(name))
    reply = load(name)
    assert (reply["format"], reply["rows"]) == (kind, 30)
    assert "." not in name or any("read as xlsx" in note for note in reply["notes"])
    text = load("a.xlsx", "a,b\n1,2\n")
    assert (text["format"], text["data"]) == ("csv", [(1, 2)])
    assert text["notes"] == ["named xlsx, but its contents are text; read as csv"]


def test_pages_of_a_pdf_are_limited(
    load: Load, document: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from _woma_kernel.datasets import documents

    document([[["x", "y"], ["1", "2"]], [["x", "y"], ["3", "4"]]])
    assert load("report.pdf")["data"] == [(1, 2), (3, 4)]
    monkeypatch.setattr(documents, "PAGES_MAX", 1)
    reply = load("report.pdf")
    assert reply["data"] == [(1, 2)]
    assert reply["notes"] == ["the first 1 of 2 pages are read; name others by `pages`"]


def test_bad_rows_are_counted_up_to_a_limit(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from _woma_kernel.datasets import delimited

    text = "a,b\n" + "1,2\n" * 3000 + "1\n" * 700
    assert load("a.csv", text)["bad_rows"]["count"] == 700
    monkeypatch.setattr(delimited, "REJECTS_MAX", 500)
    reply = load("a.csv", text)
    assert (reply["rows"], reply["bad_rows"]["count"]) == (3000, 500)
    assert len(reply["bad_rows"]["samples"]) == 5
    assert "at least 500 rows are bad; check the delimiter and the quotes" in reply["notes"]


def test_long_tables_are_described_by_a_sample(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from _woma_kernel.datasets import describe

    load("a.csv", "n,t\n" + "".join(f"{i % 7},{'x' if i % 2 else ''}\n" for i in range(50_000)))
    monkeypatch.setattr(describe, "SAMPLED_ROWS", 10_000)
    reply = serve({"do": "describe", "name": "x", "path": str(tmp_path / "out.parquet")})
    assert "sample of about 10,000 rows" in reply["notes"][0]
    assert reply["rows"] == 50_000 and reply["columns"][1]["nulls"] == 25_000
    assert sum(count for _, count in reply["columns"][0]["top"]) < 50_000


def test_a_long_load_says_how_far_it_is(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from _woma_kernel.datasets import engine, job

    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(job, "PROGRESS_SECONDS", 0.0)
    load("a.csv", "a,b,c\n" + "1,some text,2.5\n" * 400_000)
    said = capsys.readouterr().out.splitlines()
    assert said and all(re.fullmatch(r"loading a\.csv: \d+%, writing Parquet", one) for one in said)
    monkeypatch.setattr(job, "PROGRESS_SECONDS", 1000.0)
    load("a.csv")
    assert capsys.readouterr().out == ""


def test_describes_a_dataset(load: Load, tmp_path: Path) -> None:
    load(
        "a.csv",
        "n,name,day\n" + "".join(f"{i},{'ab'[i % 2]},2020-01-0{1 + i % 9}\n" for i in range(90)),
    )
    path = tmp_path / "out.parquet"
    reply = serve({"do": "describe", "name": "x", "path": str(path), "samples": 2})
    assert (reply["rows"], reply["bytes"]) == (90, path.stat().st_size)
    n, name, day = reply["columns"]
    assert (n["min"], n["max"], n["mean"], n["nulls"]) == (0, 89, 44.5, 0)
    assert 20 <= n["q25"] <= 25 and 40 <= n["q50"] <= 50 and 80 <= n["distinct"] <= 100
    assert name["top"] == [["a", 45], ["b", 45]] and (name["min"], name["max"]) == ("a", "b")
    assert (day["min"], day["max"], day["type"]) == ("2020-01-01", "2020-01-09", "DATE")
    assert reply["samples"] == [
        {"n": 0, "name": "a", "day": "2020-01-01"}, {"n": 1, "name": "b", "day": "2020-01-02"}
    ]  # fmt: skip
    path.write_bytes(b"PAR1xxxxPAR1")
    refused(serve({"do": "describe", "name": "x", "path": str(path)}), "bad_file", "'x'")


def test_describes_any_type_and_very_wide_tables(tmp_path: Path) -> None:
    import duckdb

    path = str(tmp_path / "t.parquet")
    odd = "SELECT 'nan'::DOUBLE a, 'inf'::DOUBLE b, [1] c, {'x': 1} d, 'x'::BLOB e, NULL f"
    odd += ", 1.5::DECIMAL(9, 2) AS g"
    wide = "SELECT " + ", ".join(f"{i} AS a_rather_long_name_of_column_{i}" for i in range(1500))
    with duckdb.connect() as connection:
        for query, columns in ((odd, 7), (wide, 1500), ("SELECT 1 AS a WHERE false", 1)):
            connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
            reply = serve({"do": "describe", "name": "x", "path": path})
            assert len(json.dumps(reply, allow_nan=False)) < 60_000
            assert reply["column_count"] == columns, reply
            assert columns < 200 or any("of the first 200 of 1,500" in n for n in reply["notes"])
