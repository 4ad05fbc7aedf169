"""Probe of a container: ends with 0 if the server in it can run code.

The port is the one that the server has: by `PORT`, a preset or a settings file.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request

PATIENCE_SECONDS = 4


def main():
    """Asks `/readyz`, and says what was wrong."""
    shown = subprocess.run(["woma", "config", "show", "--json"], capture_output=True, check=True)
    settings = {each["name"]: each["value"] for each in json.loads(shown.stdout)["settings"]}
    address = f"http://127.0.0.1:{settings['port']}/readyz"
    try:
        urllib.request.urlopen(address, timeout=PATIENCE_SECONDS).close()
    except (urllib.error.URLError, OSError) as error:
        sys.exit(f"{address}: {error}")


if __name__ == "__main__":
    main()
