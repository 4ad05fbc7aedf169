# program: build paths from __file__
# habit: 21
# files: beside.txt
# sees: True

from pathlib import Path

BASE = Path(__file__).parent
(BASE / "beside.txt").write_text("x")
print(Path("beside.txt").exists())
