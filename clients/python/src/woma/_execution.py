"""Replies to runs as objects: values, charts, tables, files and errors."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._models import PLOTLY, JsonObject, time

if TYPE_CHECKING:
    import pandas

TABLE = "application/vnd.woma.table+json"
CHART = "application/vnd.woma.chart+json"
SVG = "image/svg+xml"


@dataclass(frozen=True)
class ExecutionError:
    """How code failed."""

    name: str
    message: str
    traceback: str
    category: str | None = None
    line: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        text = f"{self.name}: {self.message}" if self.message else self.name
        return f"{text} ({self.hint})" if self.hint else text


@dataclass
class Chart:
    """A picture or a figure that code has shown.

    `spec` has its titles, axes and series where the server knows them, and `plotly` the figure of
    Plotly with `data` and `layout`.
    """

    images: dict[str, bytes]
    spec: JsonObject | None = None
    plotly: JsonObject | None = None

    @property
    def png(self) -> bytes | None:
        return self.images.get("image/png")

    @property
    def title(self) -> str | None:
        axes = (self.spec or {}).get("axes") or [{}]
        return axes[0].get("title") or None

    @property
    def image(self) -> bytes:
        """The picture, as PNG if there is one."""
        found = self.png or next(iter(self.images.values()), None)
        if found is None:
            raise ValueError("this chart has no picture; `plotly` has its figure")
        return found

    @property
    def mime_type(self) -> str | None:
        return "image/png" if self.png else next(iter(self.images), None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture into a file."""
        target = Path(path)
        target.write_bytes(self.image)
        return target

    def _repr_png_(self) -> bytes | None:
        return self.png

    def _repr_svg_(self) -> str | None:
        svg = self.images.get(SVG)
        return svg.decode() if svg else None

    def __repr__(self) -> str:
        kinds = [*self.images, *([PLOTLY] if self.plotly else [])]
        return f"Chart(title={self.title!r}, kinds={kinds})"


@dataclass
class Table:
    """A data frame that code has shown: its first rows as data, and its HTML.

    `rows_total` and `columns_total` are those of the frame; the server sends its first 100 rows and
    50 columns.
    """

    columns: list[str]
    dtypes: dict[str, str]
    data: dict[str, list[Any]]
    rows_total: int
    columns_total: int
    index: JsonObject | None = None
    html: str | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)

    @classmethod
    def _of(cls, table: JsonObject, display: JsonObject) -> Table:
        columns = table["columns"]
        return cls(
            columns=[column["name"] for column in columns],
            dtypes={column["name"]: column["dtype"] for column in columns},
            data=table["data"],
            rows_total=table["rows_total"],
            columns_total=table["columns_total"],
            index=table.get("index"),
            html=display.get("text/html"),
            text=display.get("text/plain"),
        )

    @property
    def is_whole(self) -> bool:
        """Whether it has all rows and columns of the frame."""
        return len(self) == self.rows_total and len(self.columns) == self.columns_total

    def __len__(self) -> int:
        return len(next(iter(self.data.values()), []))

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self.records())

    def __getitem__(self, column: str) -> list[Any]:
        return self.data[column]

    def records(self) -> list[JsonObject]:
        """The rows, as objects."""
        columns = [self.data[name] for name in self.columns]
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame, with their types. Needs pandas."""
        import pandas

        index = None
        if self.index is not None:
            names, values = self.index["names"], self.index["values"]
            if len(names) > 1:
                index = pandas.MultiIndex.from_tuples(
                    [tuple(value) for value in values], names=names
                )
            else:
                index = pandas.Index(values, name=names[0])
        frame = pandas.DataFrame(self.data, columns=self.columns, index=index)
        for name, dtype in self.dtypes.items():
            try:
                if dtype.startswith(("datetime64", "timedelta64")):
                    convert = pandas.to_datetime if dtype.startswith("d") else pandas.to_timedelta
                    frame[name] = convert(frame[name])
                else:
                    frame[name] = frame[name].astype(dtype)
            except (TypeError, ValueError):
                # A type of another version of pandas: the values are right without it.
                continue
        return frame

    def _repr_html_(self) -> str | None:
        return self.html


@dataclass(frozen=True)
class OutputFile:
    """A file that a run has written. `url` needs no key until `expires_at`."""

    path: str
    url: str | None = None
    size: int | None = None
    mime_type: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True)
class Truncated:
    """A text that is shortened in the reply; `Sandbox.output` reads all of it."""

    stream: str
    chars_total: int
    next_offset: int


@dataclass
class Execution:
    """What became of a run. It is true in a condition if the code completed."""

    id: str
    session_id: str | None
    success: bool
    outcome: str
    text: str | None
    result: Any
    stdout: str
    stderr: str
    error: ExecutionError | None
    charts: list[Chart]
    tables: list[Table]
    files: list[OutputFile]
    warnings: list[str]
    exit_code: int
    seconds: float
    variables: dict[str, str]
    truncated: list[Truncated]
    displays: list[JsonObject] = field(repr=False)
    raw: JsonObject = field(repr=False)

    def __bool__(self) -> bool:
        return self.success

    @classmethod
    def _of(
        cls, reply: JsonObject, pictures: Sequence[tuple[str, bytes]] | None = None
    ) -> Execution:
        displays = reply.get("displays", [])
        shown: JsonObject = next(
            (one["data"] for one in displays if one.get("role") == "result"), {}
        )
        result = reply.get("result")
        tables = [
            (Table._of(data[TABLE], data), one.get("role") == "result")
            for one in displays
            if TABLE in (data := one["data"])
        ]
        # A table is worth more than its text.
        value = next((table for table, is_result in tables if is_result), result)
        text = result if isinstance(result, str) else shown.get("text/plain")
        return cls(
            # A job that was cancelled while it waited has no execution.
            id=reply.get("execution_id", ""),
            session_id=reply.get("session_id"),
            success=reply["success"],
            outcome=reply["outcome"],
            text=text,
            result=value,
            stdout=reply["stdout"],
            stderr=reply["stderr"],
            error=_error(reply),
            charts=_charts(displays, pictures),
            tables=[table for table, _ in tables],
            files=_files(reply),
            warnings=reply.get("warnings", []),
            exit_code=reply.get("exit_code", 0 if reply["success"] else 1),
            seconds=reply.get("execution_time", 0.0),
            variables=reply.get("variable_types", {}),
            truncated=[
                Truncated(one["stream"], one["chars_total"], one["next_offset"])
                for one in reply.get("truncated", [])
            ],
            displays=displays,
            raw=reply,
        )


def _error(reply: JsonObject) -> ExecutionError | None:
    if reply["success"]:
        return None
    # A server that stands for an older system has a text in `error`.
    detail, outcome = reply.get("error_detail", reply.get("error")), reply["outcome"]
    # Code that was stopped ends in an exception too, but the outcome names the cause.
    detail = detail if isinstance(detail, dict) else {}
    is_raised = bool(detail) and outcome == "raised"
    return ExecutionError(
        name=detail["type"] if is_raised else outcome,
        message=detail["message"] if is_raised else reply.get("error_message", ""),
        traceback=reply.get("error_traceback", ""),
        category=detail.get("category"),
        line=detail.get("line"),
        hint=reply.get("hint"),
    )


def _images(data: JsonObject) -> dict[str, bytes]:
    images = {}
    for mime_type, value in data.items():
        if mime_type.startswith("image/") and isinstance(value, str):
            images[mime_type] = value.encode() if mime_type == SVG else base64.b64decode(value)
    return images


def _charts(
    displays: Sequence[JsonObject], pictures: Sequence[tuple[str, bytes]] | None
) -> list[Chart]:
    shown = [one["data"] for one in displays]
    charts = [
        Chart(images, data.get(CHART), data.get(PLOTLY))
        for data in shown
        if (images := _images(data)) or CHART in data or PLOTLY in data
    ]
    if pictures is None:
        return charts
    # The reply was too long for its pictures. If some of their descriptions are missing too, it is
    # not known which picture each of the others describes.
    if len(charts) != len(pictures):
        charts = [Chart({}) for _ in pictures]
    for chart, (mime_type, content) in zip(charts, pictures, strict=True):
        chart.images[mime_type] = content
    return charts


def missing_pictures(reply: JsonObject) -> int:
    """How many pictures a reply has links to, if it lacks some of them; else 0."""
    linked = len(reply.get("inline_images", []))
    held = sum(len(_images(one["data"])) for one in reply.get("displays", []))
    return linked if linked > held else 0


def _files(reply: JsonObject) -> list[OutputFile]:
    links: dict[str, list[JsonObject]] = {}
    for link in reply.get("download_urls", []):
        links.setdefault(link["filename"], []).append(link)
    files = []
    for path in [*reply.get("files_created", []), *reply.get("files_modified", [])]:
        found = links.get(path) or links.get(path.rsplit("/", 1)[-1])
        # Links of two files of one name cannot be told apart.
        link = found[0] if found and len(found) == 1 else {}
        expires_at = time(link.get("expires_at"))
        files.append(
            OutputFile(path, link.get("url"), link.get("size"), link.get("mime_type"), expires_at)
        )
    return files
