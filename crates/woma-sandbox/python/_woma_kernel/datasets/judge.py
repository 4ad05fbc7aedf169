"""Which statements a query may be. DuckDB's own parser decides; no word of the text is sought.

A statement that reads is run inside of a subquery. DuckDB refuses `WITH x AS (COPY … TO …)` and its
relatives there, though it counts them as SELECT; and a page of the result costs only its own rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .trouble import READS_ONLY, Trouble

SQL_CHARS_MAX = 200_000
_WORDS = ("explain", "analyze", "verbose")


class Judged(NamedTuple):
    """`sql` has no semicolon at its end. `leaves_types` is true of PIVOT, which creates an enum."""

    sql: str
    explain: str | None
    leaves_types: bool


def judge(connection: Any, sql: str) -> Judged:
    """The statement, if it is one and only reads; otherwise an error that says why not."""
    if len(sql) > SQL_CHARS_MAX:
        raise Trouble(
            "bad_sql", f"the SQL has {len(sql):,} characters, more than {SQL_CHARS_MAX:,}"
        )
    if "\0" in sql:
        raise Trouble("bad_sql", "the SQL has a NUL character")
    kind = _only(connection, sql)
    if kind in ("SELECT", "MULTI") and not _begins_with_explain(sql):
        return Judged(_bare(sql), None, kind == "MULTI")
    if kind in ("EXPLAIN", "MULTI"):
        return _explained(connection, sql)
    raise Trouble("not_read_only", f"{_called(kind)} is not allowed here", READS_ONLY)


def _only(connection: Any, sql: str) -> str:
    """The kind of the only statement."""
    statements = connection.extract_statements(sql)
    if not statements:
        raise Trouble("bad_sql", "there is no statement", "send one SELECT")
    if len(statements) > 1:
        raise Trouble(
            "not_read_only",
            f"there are {len(statements)} statements; a query is exactly one",
            "send one statement at a time; WITH joins several SELECTs into one",
        )
    return str(statements[0].type.name)


def _called(kind: str) -> str:
    return {"CALL": "CALL", "LOAD": "INSTALL or LOAD", "SET": "SET, RESET or USE"}.get(
        kind, kind.replace("_", " ")
    )


def _tokens(sql: str) -> list[tuple[int, str]]:
    """Positions and kinds, without comments, as DuckDB's tokenizer sees them."""
    import duckdb

    found = [(place, str(getattr(kind, "name", kind))) for place, kind in duckdb.tokenize(sql)]
    return [(place, kind) for place, kind in found if kind != "comment"]


def _bare(sql: str) -> str:
    """The text without the semicolons at its end, and without comments after them."""
    data = sql.encode()
    end = len(data)
    for place, kind in reversed(_tokens(sql)):
        if kind != "operator" or data[place : place + 1] != b";":
            break
        end = place
    return data[:end].decode()


def _begins_with_explain(sql: str) -> bool:
    tokens = _tokens(sql)
    return bool(tokens) and sql.encode()[tokens[0][0] :][:7].lower() == b"explain"


def _explained(connection: Any, sql: str) -> Judged:
    """Take EXPLAIN and its options off; what is left must be a statement that reads, by itself.

    EXPLAIN ANALYZE runs its statement, so the text that will be run is made anew from both parts.
    """
    data = sql.encode()
    tokens = _tokens(sql)
    at, analyze = 0, False
    while at < len(tokens):
        word = data[tokens[at][0] :][:7].lower()
        found = next((one for one in _WORDS if word.startswith(one.encode())), None)
        if found is None:
            break
        analyze = analyze or found == "analyze"
        at += 1
    starts = [at]
    if at < len(tokens) and data[tokens[at][0] :][:1] == b"(":  # options, or the statement itself
        closing = (i for i in range(at, len(tokens)) if data[tokens[i][0] :][:1] == b")")
        starts.insert(0, next(closing, at) + 1)
    for start in starts:
        rest = data[tokens[start][0] :].decode() if start < len(tokens) else ""
        try:
            kind = _only(connection, rest)
        except Exception:
            continue
        if kind in ("SELECT", "MULTI"):
            how = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
            return Judged(_bare(rest), how, kind == "MULTI")
    raise Trouble("not_read_only", "EXPLAIN is allowed of statements that only read", READS_ONLY)
