"""SQL that is put together at random from statements that read, write, and reach out: each has an answer
or an error of a known kind, nothing is written, and nothing outside of the datasets is read.

`WOMA_FUZZ_SECONDS` sets how long; statements are in `crates/woma-fuzz/corpus/sql.txt`.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from pathlib import Path

import pytest
from conftest import has
from test_datasets_query import Ask, ask, folder  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(not has("duckdb", "pyarrow"), reason="needs duckdb")

SECONDS = float(os.environ.get("WOMA_FUZZ_SECONDS", "6"))
SEED = 20261119
CORPUS = Path(__file__).parents[4] / "crates/woma-fuzz/corpus/sql.txt"
SECRET = "the-secret-of-another-place"
WORDS = [
    "SELECT ", "* ", "FROM ", "sales ", "regions ", "WHERE ", "name ", "id ", "(", ")", ",", ";", "'", '"',
    "--", "/*", "*/", "UNION ALL ", "WITH x AS (", "INSERT INTO ", "COPY ", " TO 'out.csv'", "ATTACH '",
    "INSTALL httpfs", "LOAD ", "SET ", "PRAGMA ", "CREATE TABLE ", "DROP TABLE sales", "UPDATE sales SET ",
    "read_csv('{secret}')", "read_text('{secret}')", "'{secret}'", "glob('{folder}/*')", "getenv('HOME')",
    "current_setting('", "$1", "?", "::INT ", "1e999", "\x00", "\u2028", "x'00'", "[1,2]", "{'a': 1}",
    "PIVOT sales ON name USING sum(v)", "LATERAL ", "query('", "query_table('sales')", "EXPLAIN ", "DESCRIBE ",
]  # fmt: skip


def inputs(secret: Path) -> list[str]:
    lines = [line for line in CORPUS.read_text().splitlines() if not line.startswith("#")]
    kept = [
        re.sub(r"\\x([0-9a-f]{2})", lambda hit: chr(int(hit[1], 16)), line)
        .replace("\\n", "\n").replace("\\'", "'").replace('\\"', '"')
        for line in lines
    ]  # fmt: skip
    return [text.replace("{secret}", str(secret)) for text in kept]


def mutated(chance: random.Random, kept: list[str], secret: Path) -> str:
    text = chance.choice(kept)
    for _ in range(chance.randint(1, 5)):
        at = chance.randint(0, len(text))
        end = min(len(text), at + chance.choice([0, 0, 1, 4, 12]))
        match chance.randint(0, 3):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                other = chance.choice(kept)
                start = chance.randint(0, len(other))
                text = text[:at] + other[start : start + chance.randint(1, 30)] + text[end:]
            case _:
                word = chance.choice(WORDS).replace("{secret}", str(secret))
                text = text[:at] + word.replace("{folder}", str(secret.parent)) + text[end:]
    return text[:4000]


def test_any_statement_has_an_answer_and_reaches_nothing(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    place = tmp_path_factory.mktemp("elsewhere")
    secret = place / "secret.csv"
    secret.write_text(f"a,b\n{SECRET},1\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("A_SECRET_OF_THE_PROCESS", SECRET)
    kept, chance = inputs(secret), random.Random(SEED)
    assert len(kept) > 20
    began, count, answered, refused = time.monotonic(), 0, 0, 0
    while count < len(kept) or time.monotonic() - began < SECONDS:
        sql = kept[count] if count < len(kept) else mutated(chance, kept, secret)
        count += 1
        reply = ask(sql, limit=50)
        shown = json.dumps(reply)
        # A statement may say the path itself; what is in the file, it cannot know.
        assert SECRET not in shown, sql
        if "error" in reply:
            refused += 1
            assert re.fullmatch(r"[a-z_]+", reply["error"]["code"]), (sql, reply)
            assert reply["error"]["code"] != "internal", (sql, reply)
        else:
            answered += 1
        assert os.listdir(place) == ["secret.csv"], sql
        assert secret.read_text() == f"a,b\n{SECRET},1\n", sql
    # Most statements are damaged; enough of them must reach the engine to mean something.
    sys.stderr.write(f"{count} statements: {answered} answered, {refused} refused\n")
    assert answered > 10 and refused > 10, (answered, refused)
