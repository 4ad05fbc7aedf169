"""Files that are meant to do harm, or are simply not what they say: each ends in a clear answer."""

from __future__ import annotations

import gzip
import io
import os
import random
import signal
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import has
from test_datasets_load import Load, load, refused  # noqa: F401 (a fixture)

sys.path.insert(0, str(Path(__file__).parent.parent))

pytestmark = pytest.mark.skipif(not has("duckdb", "openpyxl"), reason="needs duckdb")

MIB = 1 << 20
LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {chr(98 + i)} "{"&" + chr(97 + i) + ";"}{"&" + chr(97 + i) + ";"}">'
        for i in range(20)
    )
    + "]>"
)


def book(parts: dict[str, str]) -> bytes:
    """A workbook with one sheet, some parts of which are others."""
    import openpyxl

    made = openpyxl.Workbook()
    made.active.append(["a"])
    made.active.append([1])
    first, second = io.BytesIO(), io.BytesIO()
    made.save(first)
    with (
        zipfile.ZipFile(first) as source,
        zipfile.ZipFile(second, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for entry in source.infolist():
            if entry.filename not in parts:
                out.writestr(entry.filename, source.read(entry))
        for name, text in parts.items():
            out.writestr(name, text)
    return second.getvalue()


def sheet(rows: str) -> dict[str, str]:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    text = f'<worksheet xmlns="{space}"><sheetData>{rows}</sheetData></worksheet>'
    return {"xl/worksheets/sheet1.xml": text}


def test_a_zip_bomb_is_not_unpacked(load: Load) -> None:  # noqa: F811
    bomb = book({"xl/media/zeros.xml": "0" * (64 * MIB)})
    assert len(bomb) < MIB
    refused(load("a.xlsx", bomb, limits={"expanded_bytes": 32 * MIB}), "too_large", "unpacked")
    assert load("a.xlsx", bomb, limits={"expanded_bytes": 128 * MIB})["data"] == [(1,)]


def test_an_entry_that_lies_about_its_size_is_an_error(load: Load) -> None:  # noqa: F811
    data = bytearray(book({"xl/worksheets/sheet1.xml": "<a>" + "x" * (8 * MIB) + "</a>"}))
    real = (8 * MIB + 7).to_bytes(4, "little")
    assert real in data
    forged = bytes(data).replace(real, (1000).to_bytes(4, "little"))
    refused(load("a.xlsx", forged, limits={"expanded_bytes": MIB}), "bad_file")


def test_too_many_entries(load: Load) -> None:  # noqa: F811
    refused(load("a.xlsx", book({f"x/{i}": "" for i in range(10_001)})), "too_large", "10,000")


@pytest.mark.parametrize(
    "part", ["xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/workbook.xml"]
)
def test_entities_are_refused(load: Load, part: str) -> None:  # noqa: F811
    refused(load("a.xlsx", book({part: LAUGHS + "<a>&t;</a>"})), "bad_file", "entities")
    wide = (LAUGHS + "<a>&t;</a>").encode("utf-16").decode("latin-1")
    refused(load("a.xlsx", book({part: wide})), "bad_file")


def test_a_cell_at_the_end_of_the_sheet(load: Load) -> None:  # noqa: F811
    far = '<row r="1"><c r="A1"><v>1</v></c></row>'
    far += '<row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    refused(load("a.xlsx", book(sheet(far)), limits={"columns": 100}), "too_large", "columns")


def test_too_many_rows_of_a_sheet(load: Load) -> None:  # noqa: F811
    rows = "".join(f'<row r="{i}"><c r="A{i}"><v>{i}</v></c></row>' for i in range(1, 7000))
    refused(load("a.xlsx", book(sheet(rows)), limits={"rows": 5000}), "too_large", "5,000")


def test_other_archives_are_named(load: Load) -> None:  # noqa: F811
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
    refused(load("a.csv", data.getvalue()), "unsupported_format", "unpack it")
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("xl/workbook.bin", b"")
    refused(load("a.xlsb", data.getvalue()), "unsupported_format", "xlsb")
    refused(load("a.xlsb", b"anything"), "unsupported_format", "xlsb")


def test_a_bomb_of_gzip(load: Load) -> None:  # noqa: F811
    bomb = gzip.compress(b"a\n" + b"1\n" * (16 * MIB))
    refused(load("a.csv.gz", bomb, limits={"expanded_bytes": MIB}), "too_large", "unpacked")
    refused(load("a.csv.gz", bomb[:-20]), "bad_file", "damaged")


@pytest.mark.parametrize("name", ["a.xlsx", "a.xls", "a.parquet", "a.pdf", "a.json", "a.csv", "a"])
def test_noise_is_an_answer(load: Load, name: str) -> None:  # noqa: F811
    old = bytes.fromhex("d0cf11e0a1b11ae1")
    magic = {"a.xlsx": b"PK\x03\x04", "a.xls": old, "a.parquet": b"PAR1",
             "a.pdf": b"%PDF-1.7\n"}  # fmt: skip
    for seed in range(3):
        noise = random.Random(seed).randbytes(20_000)
        for data in (noise, magic.get(name, b"") + noise):
            reply = load(name, data)
            assert reply["error"]["code"] == "bad_file", reply
            assert name in reply["error"]["message"]


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_torn_files_are_answers(load: Load, tmp_path: Path, cut: float) -> None:  # noqa: F811
    import duckdb

    path = tmp_path / "whole.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT i, 'n' || i FROM range(10000) t(i)) TO '{path}'")
    whole = path.read_bytes()
    refused(load("a.parquet", whole[: int(len(whole) * cut)]), "bad_file", "a.parquet")
    whole = book({})
    refused(load("a.xlsx", whole[: int(len(whole) * cut)]), "bad_file", "a.xlsx")


def test_flipped_bytes_of_parquet_never_end_the_process(load: Load, tmp_path: Path) -> None:  # noqa: F811
    import duckdb

    path = tmp_path / "whole.parquet"
    query = "SELECT i, 'n' || i AS t, [i] AS l, {'a': i} AS s FROM range(3000) t(i)"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    whole = path.read_bytes()
    for seed in range(40):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(8):
            data[chance.randrange(4, len(data) - 8)] = chance.randrange(256)
        reply = load("a.parquet", bytes(data))
        assert "rows" in reply or reply["error"]["code"] in (
            "bad_file", "too_large", "no_rows", "out_of_memory"
        ), reply  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300_000 + "]" * 300_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '[{"a":' + "[" * 500 + "]" * 500 + "}]",
    ],
    ids=["lists", "objects", "inside"],
)
def test_deep_json(load: Load, text: str) -> None:  # noqa: F811
    refused(load("a.json", text), "bad_file", "nested too deeply")
    reply = load("a.ndjson", '{"a": 1}\n' + text + "\n")
    assert reply.get("data") == [(1,)] or reply["error"]["code"] == "bad_file", reply


def test_a_line_without_an_end(load: Load) -> None:  # noqa: F811
    refused(load("a.csv", b"x" * (100 * MIB)), "bad_file", "longer than 16 MiB")
    reply = load("a.csv", b"a,b\n1,2\n3," + b"x" * (20 * MIB) + b"\n5,6\n")
    assert "error" in reply or [row for row in reply["data"] if row[0] in (1, 5)], reply


def test_a_million_columns(load: Load) -> None:  # noqa: F811
    text = ",".join(f"c{i}" for i in range(1_000_000)) + "\n" + ",".join("1" * 1_000_000) + "\n"
    refused(load("a.csv", text), "too_large", "columns")
    wide = ",".join(f"column_number_{i}" for i in range(1900)) + "\n" + ",".join("1" * 1900) + "\n"
    reply = load("a.csv", wide)
    assert reply["column_count"] == 1900 and len(reply["columns"]) < 1900
    assert any("of 1900 columns are listed" in note for note in reply["notes"])
    names = ", ".join(f'"k{i}": 1' for i in range(3000))
    assert load("a.json", f"[{{{names}}}]", limits={"columns": 5000})["column_count"] == 3000
    many = load("a.json", f"[{{{names}}}]")  # names that are rather values
    assert [c["type"] for c in many["columns"]] == ["MAP(VARCHAR, BIGINT)"]


def test_limits_of_rows_columns_and_bytes(load: Load) -> None:  # noqa: F811
    text = "a,b\n" + "".join(f"{i},{i * 7919 % 1000003}\n" for i in range(5000))
    refused(load("a.csv", text, limits={"rows": 4999}), "too_large", "5,000 rows")
    assert load("a.csv", text, limits={"rows": 5000})["rows"] == 5000
    refused(load("a.csv", text, limits={"columns": 1}), "too_large", "2 columns")
    refused(load("a.csv", text, limits={"bytes": 1_000}), "too_large", "bytes as Parquet")
    wide = "ä\n".encode("latin-1") * MIB
    refused(load("a.csv", wide, limits={"expanded_bytes": MIB}), "too_large", "bytes in UTF-8")


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", "a,b,c\n"])
def test_nothing_to_load(load: Load, text: str) -> None:  # noqa: F811
    refused(load("a.csv", text), "no_rows")


def test_names_that_are_sql(load: Load) -> None:  # noqa: F811
    header = '"a""; DROP TABLE x; --",it\'s,{\'x\': 1},%s'
    reply = load("it's a 'name'; --.csv", header + "\n1,2,3,4\n")
    assert [c["name"] for c in reply["columns"]] == [
        'a"; DROP TABLE x; --',
        "it's",
        "{'x': 1}",
        "%s",
    ]
    assert reply["data"] == [(1, 2, 3, 4)]


def test_files_that_are_something_else(load: Load) -> None:  # noqa: F811
    refused(load("a.xls", "<html><table></table></html>"), "unsupported_format", "HTML")
    refused(load("a.parquet", "a,b\n1,2\n"), "bad_file", "not a parquet file")
    refused(load("a.pdf", "hello"), "bad_file", "not a pdf file")
    refused(load("gone.csv"), "bad_file", "cannot be opened")


def test_a_signal_ends_a_load(load: Load, tmp_path: Path) -> None:  # noqa: F811
    from _woma_kernel.datasets import engine

    path = tmp_path / "a.csv"
    path.write_text("a,b,c\n" + "1,some text,2.5\n" * 1_500_000)
    began, ended, real = threading.Event(), threading.Event(), engine.run

    def run(connection: Any, work: Callable[[], Any], look: Any = None) -> Any:
        if look is not None:
            began.set()
        return real(connection, work, look)

    def stop() -> None:
        began.wait()
        if not ended.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    stopper = threading.Thread(target=stop)
    engine.run = run
    stopper.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            load("a.csv")
    finally:
        engine.run = real
        ended.set()
        began.set()
        stopper.join()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv"]
