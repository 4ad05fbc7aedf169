"""Woma: live, sandboxed Python sessions.

from woma import Sandbox

with Sandbox() as sandbox:
    print(sandbox.run("6 * 7").result)
"""

from ._async.datasets import AsyncDatasets
from ._async.files import AsyncFiles
from ._async.jobs import AsyncJob, AsyncJobs
from ._async.sandbox import AsyncSandbox
from ._async.sessions import AsyncSessions
from ._errors import (
    ApiError,
    BusyError,
    CancelledRequestError,
    ConflictError,
    ConnectionFailed,
    ExecutionFailed,
    FetchFailedError,
    ForbiddenError,
    GoneError,
    IdempotencyMismatchError,
    InsufficientStorageError,
    InternalServerError,
    InvalidArgumentError,
    JobWaitTimedOut,
    MethodNotAllowedError,
    NotAcceptableError,
    NotFoundError,
    QuotaExceededError,
    RateLimitedError,
    RequestTimedOut,
    ServerStartError,
    TimedOutError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UploadTimeoutError,
    WomaError,
)
from ._execution import (
    Chart,
    Execution,
    ExecutionError,
    OutputFile,
    Table,
    Truncated,
)
from ._models import (
    Checkpoint,
    Column,
    DatasetDescription,
    DatasetInfo,
    Display,
    FileInfo,
    Health,
    JobState,
    Progress,
    QueryResult,
    SessionInfo,
    Text,
)
from ._sync.datasets import Datasets
from ._sync.files import Files
from ._sync.jobs import Job, Jobs
from ._sync.sandbox import Sandbox
from ._sync.sessions import Sessions

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "AsyncDatasets",
    "AsyncFiles",
    "AsyncJob",
    "AsyncJobs",
    "AsyncSandbox",
    "AsyncSessions",
    "BusyError",
    "CancelledRequestError",
    "Chart",
    "Checkpoint",
    "Column",
    "ConflictError",
    "ConnectionFailed",
    "DatasetDescription",
    "DatasetInfo",
    "Datasets",
    "Display",
    "Execution",
    "ExecutionError",
    "ExecutionFailed",
    "FetchFailedError",
    "FileInfo",
    "Files",
    "ForbiddenError",
    "GoneError",
    "Health",
    "IdempotencyMismatchError",
    "InsufficientStorageError",
    "InternalServerError",
    "InvalidArgumentError",
    "Job",
    "JobState",
    "JobWaitTimedOut",
    "Jobs",
    "MethodNotAllowedError",
    "NotAcceptableError",
    "NotFoundError",
    "OutputFile",
    "Progress",
    "QueryResult",
    "QuotaExceededError",
    "RateLimitedError",
    "RequestTimedOut",
    "Sandbox",
    "ServerStartError",
    "SessionInfo",
    "Sessions",
    "Table",
    "Text",
    "TimedOutError",
    "TooLargeError",
    "Truncated",
    "UnauthenticatedError",
    "UnavailableError",
    "UploadTimeoutError",
    "WomaError",
    "__version__",
]
