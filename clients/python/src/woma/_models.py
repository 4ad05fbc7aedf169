"""Replies of the server as objects; those to runs are in `_execution`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas

PLOTLY = "application/vnd.plotly.v1+json"

JsonObject = dict[str, Any]
JobStatus = Literal["pending", "running", "completed", "failed", "cancelled", "timeout"]
FINAL = frozenset({"completed", "failed", "cancelled", "timeout"})


@dataclass(frozen=True)
class Progress:
    """How far code is: `progress(0.4, "message")` in it, or a bar of tqdm."""

    fraction: float
    message: str = ""


@dataclass(frozen=True)
class Text:
    """A piece of a job's output; standard output and standard error are one text."""

    text: str
    offset: int
    next_offset: int
    skipped: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Display:
    """Something that code has shown: text, HTML, the bytes of a picture, a figure of Plotly."""

    mime_type: str
    data: str | bytes | JsonObject
    is_result: bool = False


@dataclass(frozen=True)
class FileInfo:
    """A file of a session; `path` is relative to its working directory."""

    path: str
    size: int
    mime_type: str
    modified: datetime | None = None
    url: str | None = None

    @classmethod
    def _of(cls, reply: JsonObject) -> FileInfo:
        return cls(
            path=reply["path"],
            size=reply["size_bytes"],
            mime_type=reply["mime_type"],
            modified=time(reply.get("modified")),
            url=reply.get("download_url"),
        )


@dataclass(frozen=True)
class SessionInfo:
    """A session of the caller."""

    id: str
    name: str
    description: str
    created_at: datetime
    last_activity: datetime
    is_busy: bool
    is_live: bool
    execution_count: int
    labels: Mapping[str, str]
    policy: str | None
    expires_in: float | None
    lifetime: int | None

    @classmethod
    def _of(cls, reply: JsonObject) -> SessionInfo:
        return cls(
            id=reply["session_id"],
            name=reply["name"],
            description=reply["description"],
            created_at=moment(reply["created_at"]),
            last_activity=moment(reply["last_activity"]),
            is_busy=reply["is_busy"],
            is_live=reply["is_live"],
            execution_count=reply["execution_count"],
            labels=reply.get("labels", {}),
            policy=reply.get("policy"),
            expires_in=reply.get("expires_in"),
            lifetime=reply.get("lifetime"),
        )


@dataclass(frozen=True)
class Checkpoint:
    """Variables that were saved or restored, and those that could not be, with the reason."""

    variables: list[str]
    left_out: dict[str, str]
    saved_at: datetime | None
    raw: JsonObject = field(repr=False)


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset: a table that SQL can name."""

    name: str
    columns: list[Column]
    row_count: int
    size_bytes: int
    format: str
    created_at: datetime
    source: str | None
    warnings: list[str]
    raw: JsonObject = field(repr=False)

    @classmethod
    def _of(cls, reply: JsonObject) -> DatasetInfo:
        return cls(
            name=reply["name"],
            columns=[Column(column["name"], column["type"]) for column in reply["columns"]],
            row_count=reply["row_count"],
            size_bytes=reply["size_bytes"],
            format=reply["format"],
            created_at=moment(reply["created_at"]),
            source=reply.get("source"),
            warnings=reply.get("warnings", []),
            raw=reply,
        )


@dataclass(frozen=True)
class DatasetDescription:
    """A dataset with statistics of its columns, and some of its rows."""

    dataset: DatasetInfo
    statistics: list[JsonObject]
    samples: list[JsonObject]

    @classmethod
    def _of(cls, reply: JsonObject) -> DatasetDescription:
        return cls(DatasetInfo._of(reply), reply["statistics"], reply["samples"])


class QueryResult(Sequence[JsonObject]):
    """Rows of a query, each an object, with the names and SQL types of the columns."""

    def __init__(self, reply: JsonObject) -> None:
        self.rows: list[JsonObject] = reply["data"]
        self.columns: list[str] = reply["columns"]
        self.types: list[str] = reply["types"]
        self.offset: int = reply["offset"]
        self.has_more: bool = reply["has_more"]
        self.total: int | None = reply.get("total")
        self.warnings: list[str] = reply.get("warnings", [])
        self.raw = reply

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        return f"QueryResult({self.rows!r})"

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.rows, columns=self.columns)


@dataclass(frozen=True)
class JobState:
    """A job as the server describes it."""

    id: str
    status: JobStatus
    session_id: str | None
    submitted_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    progress: Progress | None
    error: str | None
    attempts: int
    warnings: list[str]
    webhook_secret: str | None
    raw: JsonObject = field(repr=False)

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @classmethod
    def _of(cls, reply: JsonObject) -> JobState:
        return cls(
            id=reply["job_id"],
            status=reply["status"],
            session_id=reply.get("session_id"),
            submitted_at=moment(reply["submitted_at"]),
            started_at=time(reply.get("started_at")),
            completed_at=time(reply.get("completed_at")),
            progress=progress(reply["progress"]) if "progress" in reply else None,
            error=reply["error"]["message"] if "error" in reply else None,
            attempts=reply["attempts"],
            warnings=reply.get("warnings", []),
            webhook_secret=reply.get("webhook_secret"),
            raw=reply,
        )


@dataclass(frozen=True)
class Health:
    """Health of the server; fields that need a key are in `raw` if there was one."""

    status: str
    version: str
    database: str
    isolation: str | None
    problems: list[str]
    raw: JsonObject = field(repr=False)

    @property
    def is_healthy(self) -> bool:
        return self.status == "healthy"

    @classmethod
    def _of(cls, reply: JsonObject) -> Health:
        return cls(
            status=reply["status"],
            version=reply["version"],
            database=reply["database"],
            isolation=reply.get("isolation"),
            problems=reply.get("problems", []),
            raw=reply,
        )


def progress(reply: JsonObject) -> Progress:
    return Progress(reply["fraction"], reply.get("message", ""))


def moment(text: str) -> datetime:
    """A time of the server. Python 3.10 reads six digits of a second's fraction, and no `Z`."""
    head, dot, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{head}{dot}{rest[:6].ljust(6, '0') if dot else ''}+00:00")


def time(text: str | None) -> datetime | None:
    return None if text is None else moment(text)
