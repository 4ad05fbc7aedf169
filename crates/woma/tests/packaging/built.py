"""A cargo for maturin that has built already: its binary is `WOMA_BUILT`, so that a wheel takes no release build.

`CARGO_REAL` answers everything else. What is printed are cargo's own messages, of which maturin reads the artifact.
"""

import json
import os
import subprocess
import sys

CARGO = os.environ["CARGO_REAL"]


def main():
    arguments = sys.argv[1:]
    if arguments[0] != "rustc":
        os.execv(CARGO, [CARGO, *arguments])
    manifest = arguments[arguments.index("--manifest-path") + 1]
    name = arguments[arguments.index("--bin") + 1]
    command = [CARGO, "metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path", manifest]
    known = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    package = next(each for each in known["packages"] if each["manifest_path"] == manifest)
    target = next(each for each in package["targets"] if each["kind"] == ["bin"] and each["name"] == name)
    profile = {"opt_level": "0", "debuginfo": 0, "debug_assertions": True, "overflow_checks": True, "test": False}
    print(json.dumps({
        "reason": "compiler-artifact", "package_id": package["id"], "manifest_path": manifest, "target": target,
        "profile": profile, "features": [], "filenames": [os.environ["WOMA_BUILT"]],
        "executable": os.environ["WOMA_BUILT"], "fresh": True}))
    print(json.dumps({"reason": "build-finished", "success": True}))


if __name__ == "__main__":
    main()
