# program: work with temporary files
# sees: 3 lines
# not: File:

import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "scratch.txt"
    path.write_text("a\nb\nc\n")
    print(len(path.read_text().splitlines()), "lines")
