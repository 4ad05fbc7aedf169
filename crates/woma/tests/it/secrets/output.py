"""Everything that a program can say, with the value in it."""
import base64
import subprocess
import sys
import threading
import time
import urllib.parse

from IPython.display import HTML, JSON, display

print(told, repr(told), told.encode().hex(), base64.b64encode(b"x" + told.encode()).decode())
print(urllib.parse.quote(told, safe=""), file=sys.stderr)
parts = [told[:9], told[9:]]
for part in parts:
    sys.stdout.write(part)
    sys.stdout.flush()
    time.sleep(0.05)
print()
subprocess.run(["printf", "%s", told])
display(HTML(f"<b>{told}</b>"))
display(JSON({"told": told}))
threading.Timer(0.2, lambda: print(told)).start()
{"told": told}
