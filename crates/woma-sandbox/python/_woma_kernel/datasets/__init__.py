"""Tables of a caller: files loaded into Parquet, SQL over them, and `datasets` in sessions.

The server never parses a file or a statement: it has a cell call `serve` with a request, and reads
the small reply and the file that the request names. Nothing here is imported before it is needed,
and duckdb only by the modules that use it.
"""

from __future__ import annotations

from typing import Any


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Do what the request says. A mistake of the caller is a reply, not an exception."""
    from .trouble import Trouble, explained

    try:
        if request["do"] == "query":
            from .query import query as work
        elif request["do"] == "load":
            from .load import load as work
        elif request["do"] == "describe":
            from .describe import describe as work
        else:
            raise ValueError(f"unknown request: {request['do']!r}")
        return work(request)
    except Trouble as trouble:
        return {"error": trouble.told()}
    except Exception as error:
        known = explained(error, request)
        if known is None:
            raise
        return {"error": known.told()}
