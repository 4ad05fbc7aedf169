"""Makes the files of src/woma/_sync from those of src/woma/_async: the same code without waiting.

`make_sync.py` writes them; `make_sync.py --check` fails if they are not up to date. `io.py`, where
both differ, is written by hand in each folder.
"""

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "woma"
NOTE = "# Made from {} by scripts/make_sync.py: change that file.\n"
WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r" for asyncio\b", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\baread\b", "read"),
    (r"\baclose\b", "close"),
    (r"\bAsync(?=[A-Z])", ""),
]


def made(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    head, _, body = text.partition("\n")
    return f"{head}\n\n{NOTE.format(f'_async/{source.name}')}{body}"


def main() -> None:
    is_check = "--check" in sys.argv[1:]
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        target = PACKAGE / "_sync" / source.name
        if source.name == "io.py":
            continue
        if not is_check:
            target.write_text(made(source), encoding="utf-8")
        elif target.read_text(encoding="utf-8") != made(source):
            sys.exit(f"{target} is not what {source} makes: run scripts/make_sync.py")


if __name__ == "__main__":
    main()
