"""Files, jobs, datasets and sessions."""

from __future__ import annotations

import io
import time
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest

from woma import (
    ConflictError,
    ExecutionFailed,
    JobWaitTimedOut,
    NotFoundError,
    Progress,
    Sandbox,
    Text,
    TooLargeError,
)

CSV = "city,amount\nBern,3\nOslo,5\nBern,8\n"


def test_files_are_written_read_listed_and_deleted(sandbox: Sandbox, tmp_path: Path) -> None:
    local = tmp_path / "local.bin"
    content = bytes(range(256)) * 4000
    local.write_bytes(content)
    assert sandbox.files.write("a/text é.txt", "höy").size == 4
    sandbox.files.write("b.bin", b"\x00\xff")
    sandbox.files.write("c.bin", local)
    sandbox.files.write("d.bin", io.BytesIO(content))
    assert sandbox.files.read_text("a/text é.txt") == "höy"
    assert sandbox.files.read("b.bin") == b"\x00\xff"
    assert sandbox.files.read("c.bin") == sandbox.files.read("d.bin") == content
    assert sandbox.run("open('a/text é.txt').read()").result == "höy"
    listed = {file.path: file.size for file in sandbox.files.list()}
    assert listed == {"a/text é.txt": 4, "b.bin": 2, "c.bin": len(content), "d.bin": len(content)}
    assert sandbox.files.exists("b.bin") and not sandbox.files.exists("a")
    sandbox.files.delete("b.bin")
    assert not sandbox.files.exists("b.bin")
    with pytest.raises(NotFoundError):
        sandbox.files.read("b.bin")
    with pytest.raises(ConflictError):
        sandbox.files.read("a")


def test_folders_are_uploaded_and_archived(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "a.csv").write_text(CSV)
    (folder / "main.py").write_text("print('main')")
    (folder / ".hidden").write_text("secret")
    (folder / "link").symlink_to("/etc/hostname")
    uploaded = [file.path for file in sandbox.files.upload(folder, "work")]
    assert uploaded == ["work/data/a.csv", "work/main.py"]
    assert sandbox.run("%run work/main.py").stdout == "main\n"
    assert [file.path for file in sandbox.files.upload(folder / "main.py")] == ["main.py"]
    with zipfile.ZipFile(sandbox.files.archive(tmp_path / "all.zip")) as archive:
        assert sorted(archive.namelist()) == ["main.py", "work/data/a.csv", "work/main.py"]
    with zipfile.ZipFile(sandbox.files.archive(tmp_path / "part.zip", "work/data")) as archive:
        assert [name.rsplit("/", 1)[-1] for name in archive.namelist()] == ["a.csv"]


def test_a_download_is_whole_or_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.files.write("out/a.csv", CSV)
    assert sandbox.files.download("out/a.csv", tmp_path) == tmp_path / "a.csv"
    assert (tmp_path / "a.csv").read_text() == CSV
    with pytest.raises(NotFoundError):
        sandbox.files.download("out/b.csv", tmp_path / "b.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_file_beyond_the_limit_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(60 * 1024 * 1024)
    with pytest.raises(TooLargeError) as raised:
        sandbox.files.write("large.bin", large)
    assert raised.value.status == 413


def test_a_job_is_followed_to_its_result(sandbox: Sandbox) -> None:
    sandbox.run("x = 40")
    code = "print('begun', flush=True)\nprogress(0.5, 'half')\nprint('done')\nx + 2"
    job = sandbox.jobs.submit(code, timeout=60)
    events = list(job.stream())
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text.startswith("begun\n") and text.endswith("done\n")
    assert Progress(0.5, "half") in events
    assert job.status == "completed" and job.progress == Progress(0.5, "half")
    assert job.result().result == 42
    assert [one.id for one in sandbox.jobs.list(status="completed")] == [job.id]
    assert sandbox.jobs.get(job.id).status == "completed"


def test_a_job_is_waited_for_cancelled_and_checked(sandbox: Sandbox) -> None:
    job = sandbox.jobs.submit("import time\nprint('x', flush=True)\ntime.sleep(600)")
    with pytest.raises(JobWaitTimedOut):
        job.wait(0.1)
    assert next(iter(job.stream())) == Text("x\n", 0, 2)
    assert job.cancel().wait(60).status == "cancelled"
    assert not job.result() and job.state.is_final
    failed = sandbox.jobs.submit("1 / 0")
    with pytest.raises(ExecutionFailed, match="ZeroDivisionError"):
        failed.result(60, check=True)
    assert (failed.status, failed.state.error is not None) == ("failed", True)


def test_a_time_of_a_job_needs_a_zone(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="time zone"):
        sandbox.jobs.submit("1", run_at=datetime(2030, 1, 1))
    job = sandbox.jobs.submit("1", run_at=datetime(2030, 1, 1, tzinfo=timezone.utc))
    assert job.status == "pending"
    result = job.cancel().result()
    assert not result and result.outcome == "cancelled" and result.error is not None


def test_datasets_are_loaded_queried_and_dropped(sandbox: Sandbox, unique: str) -> None:
    sandbox.files.write("sales.csv", CSV)
    dataset = sandbox.datasets.load("sales.csv", unique)
    assert (dataset.name, dataset.row_count) == (unique, 3)
    assert [column.name for column in dataset.columns] == ["city", "amount"]
    sql = f"SELECT city, sum(amount) AS total FROM {unique} GROUP BY city ORDER BY city"
    result = sandbox.datasets.query(sql, count=True)
    assert list(result) == [{"city": "Bern", "total": 11}, {"city": "Oslo", "total": 5}]
    assert (result.columns, result.total, result.has_more) == (["city", "total"], 2, False)
    assert result.to_pandas()["total"].tolist() == [11, 5]
    named = sandbox.datasets.query(f"SELECT * FROM {unique} WHERE amount > $least", {"least": 4})
    assert [row["amount"] for row in named] == [5, 8]
    listed = sandbox.datasets.query(f"SELECT * FROM {unique} WHERE city = ?", ["Oslo"])
    assert len(listed) == 1 and listed[0]["amount"] == 5
    sandbox.files.write("out.arrow", sandbox.datasets.export(sql))
    code = "import pyarrow.ipc as ipc\nipc.open_file('out.arrow').read_all()['city'].to_pylist()"
    assert sandbox.run(code, check=True).result == ["Bern", "Oslo"]
    assert sandbox.datasets.export(sql, format="csv").decode().splitlines()[2] == '"Oslo",5'
    assert sandbox.datasets.save(sql, "out.parquet") == 2
    assert sandbox.files.exists("out.parquet")
    assert unique in [one.name for one in sandbox.datasets.list()]
    assert sandbox.datasets.get(unique).row_count == 3
    description = sandbox.datasets.describe(unique)
    assert [column["name"] for column in description.statistics] == ["city", "amount"]
    sandbox.datasets.drop(unique)
    with pytest.raises(NotFoundError):
        sandbox.datasets.get(unique)


def test_a_new_session_ends_with_its_sandbox_and_a_named_one_stays(unique: str) -> None:
    with Sandbox() as sandbox:
        sandbox.run("x = 1")
        own = sandbox.session_id
        assert sandbox.sessions.get(own).execution_count == 1
    with Sandbox(unique, labels={"made": unique}, lifetime=600) as sandbox:
        with pytest.raises(NotFoundError):
            sandbox.sessions.get(own)
        sandbox.run("x = 2")
        assert sandbox.sessions.get(unique).lifetime == 600
    with Sandbox(unique) as sandbox:
        assert sandbox.run("x").result == 2
        assert [one.id for one in sandbox.sessions.list(label=f"made={unique}")] == [unique]
        sandbox.sessions.delete(unique)


def test_sessions_are_made_changed_and_shared(sandbox: Sandbox, unique: str) -> None:
    made = sandbox.sessions.create(unique, name="Sales", labels={"team": unique})
    assert (made.name, made.labels, made.execution_count) == ("Sales", {"team": unique}, 0)
    assert sandbox.sessions.update(unique, name="More").name == "More"
    other = sandbox.sessions.connect(unique, keep=False)
    other.run("shared = 1")
    assert "shared" in other.run("dir()").result and other.url == sandbox.url
    cells = sandbox.sessions.notebook(unique)["cells"]
    assert any("shared = 1" in "".join(cell["source"]) for cell in cells)
    other.close()
    with pytest.raises(NotFoundError):
        sandbox.sessions.get(unique)
    assert sandbox.run("1").result == 1


def test_checkpoints_bring_variables_back(sandbox: Sandbox) -> None:
    sandbox.run("x = 1\ny = (n for n in range(3))")
    saved = sandbox.checkpoint()
    assert saved.variables == ["x"] and list(saved.left_out) == ["y"]
    sandbox.run("x = 2")
    restored = sandbox.restore()
    assert restored.variables == ["x"]
    assert restored.saved_at is not None and restored.saved_at.tzinfo is not None
    assert sandbox.run("x").result == 1
    assert sandbox.reset().execution_count == 0
    assert sandbox.run("x").error is not None


def test_running_code_is_interrupted(sandbox: Sandbox) -> None:
    assert sandbox.interrupt() is False if sandbox.run("x = 1") else False
    interrupted: list[bool] = []
    code = "import time\nprint('on')\ntime.sleep(600)"
    execution = sandbox.run(
        code, on_stdout=lambda _: interrupted.append(sandbox.interrupt()), timeout=600
    )
    assert interrupted == [True] and execution.outcome == "interrupted"
    assert sandbox.run("x").result == 1


def test_health_is_told(sandbox: Sandbox) -> None:
    deadline = time.monotonic() + 60
    while (health := sandbox.health()).isolation == "examining" and time.monotonic() < deadline:
        sandbox.run("1")
    assert health.is_healthy and health.isolation in ("full", "strong") and health.version
