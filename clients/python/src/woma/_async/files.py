"""Files of a session."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _wire as wire
from .._errors import ApiError
from .._models import FileInfo

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncFiles:
    """Files of the session. Paths are relative to its working directory."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    def _path(self, path: str) -> str:
        return wire.file_path(self._sandbox.session_id, path)

    async def write(self, path: str, data: wire.Content) -> FileInfo:
        """Write a file: text, bytes, an open file, or the path of a local file."""
        connection = await self._sandbox._ready()
        content, size = wire.pieces(data)
        request = wire.Request("PUT", self._path(path), content=content, size=size, repeatable=True)
        return FileInfo._of(await connection.json(request))

    async def read(self, path: str) -> bytes:
        """The content of a file."""
        connection = await self._sandbox._ready()
        return (await connection.send(wire.get(self._path(path)))).content

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """The content of a text file."""
        return (await self.read(path)).decode(encoding)

    async def exists(self, path: str) -> bool:
        """Whether there is a plain file of that path."""
        connection = await self._sandbox._ready()
        try:
            await connection.send(wire.Request("HEAD", self._path(path), repeatable=True))
        except ApiError as error:
            # A reply to HEAD has no body, and so no code; 409 is a folder.
            if error.status in (404, 409):
                return False
            raise
        return True

    async def list(self) -> list[FileInfo]:
        """All files of the session, by path; hidden ones are left out."""
        connection = await self._sandbox._ready()
        path = f"{self._sandbox._path()}/files"
        found: list[FileInfo] = []
        cursor: str | None = None
        while True:
            page = await connection.json(wire.get(path, limit=1000, cursor=cursor))
            found.extend(FileInfo._of(file) for file in page["files"])
            cursor = page.get("next")
            if cursor is None:
                return found

    async def delete(self, path: str) -> None:
        """Delete a file."""
        connection = await self._sandbox._ready()
        await connection.send(wire.delete(self._path(path)))

    async def upload(
        self, local: str | os.PathLike[str], path: str | None = None
    ) -> Sequence[FileInfo]:
        """Upload a local file, or all files below a local folder; hidden ones and links stay.

        `path` is the file or the folder in the session; by default a file keeps its name, and the
        content of a folder comes into the working directory.
        """
        source = Path(local)
        if not source.is_dir():
            return [await self.write(path or source.name, source)]
        prefix = f"{path.rstrip('/')}/" if path else ""
        return [await self.write(prefix + name, file) for file, name in wire.local_files(source)]

    async def download(self, path: str, local: str | os.PathLike[str] | None = None) -> Path:
        """Write a file of the session into a local one, which appears complete or not at all.

        `local` may be a folder; by default the file comes into the current one.
        """
        target = Path(local) if local is not None else Path()
        if target.is_dir():
            target = target / path.rsplit("/", 1)[-1]
        return await self._save(wire.get(self._path(path)), target)

    async def archive(self, local: str | os.PathLike[str], path: str | None = None) -> Path:
        """Write all files of the session, or those of one folder, into a local zip file."""
        remote = self._path(path) if path else f"{self._sandbox._path()}/files"
        return await self._save(wire.get(remote, archive="zip"), Path(local))

    async def _save(self, request: wire.Request, target: Path) -> Path:
        request.headers["Accept"] = "*/*"
        connection = await self._sandbox._ready()
        aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            async with connection.stream(request) as response:
                with aside.open("wb") as file:
                    async for piece in response.aiter_bytes():
                        file.write(piece)
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
        return target

    async def fetch(self, url: str, filename: str | None = None) -> FileInfo:
        """Have the server download a file from a public address into the session."""
        connection = await self._sandbox._ready()
        body = wire.without_none(url=url, filename=filename, session_id=self._sandbox.session_id)
        return FileInfo._of(
            await connection.json(wire.keyed("/api/v1/fetches", body, wire.run_timeout(None)))
        )
