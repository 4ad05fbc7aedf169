"""Tell Woma about this interpreter, as one line of JSON.

Runs as `python -I -B -c`, so neither the caller's variables nor the current folder count. The
syntax stays old on purpose: an interpreter we cannot use must still be able to say which it is.
"""

import json
import os
import sys


def links(path):
    """Every spelling of the executable that the kernel meets on its way to the real file."""
    found = []
    while path not in found and len(found) < 40:
        found.append(path)
        if os.path.islink(path):
            folder, target = os.path.split(path)[0], os.readlink(path)
            # `..` counts from where a linked folder really is, not from how it is spelled.
            folder = os.path.realpath(folder) if ".." in target else folder
            path = os.path.normpath(os.path.join(folder, target))
    return found


def root(path):
    """The installation an executable belongs to, or only its folder: `~/bin` must not mean `~`."""
    folder = os.path.dirname(path)
    above = os.path.dirname(folder)
    library = "lib/python%d.%d" % sys.version_info[:2]
    is_installation = os.path.basename(folder) == "bin" and os.path.isdir(
        os.path.join(above, library)
    )
    return above if is_installation else folder


def libraries():
    """Folders of the shared libraries that the interpreter and its usual extensions load."""
    for name in ("ssl", "sqlite3", "ctypes", "zlib", "bz2", "lzma", "readline"):
        try:
            __import__(name)
        except ImportError:
            pass
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[-1].strip() for line in maps}
    shared = [path for path in paths if path.startswith("/") and ".so" in path]
    return sorted({os.path.dirname(path) for path in shared})


def describe():
    """What decides whether we can use it; the rest only where we can."""
    import platform

    facts = {
        "implementation": platform.python_implementation(),
        "version": list(sys.version_info[:3]),
        "executable": sys.executable,
    }
    if facts["implementation"] != "CPython" or sys.version_info < (3, 10):
        return facts

    import importlib.util
    import sysconfig

    base = getattr(sys, "_base_executable", "") or sys.executable
    hops = links(sys.executable)
    paths = [path for path in sys.path if os.path.isdir(path)]
    facts.update(
        prefix=sys.prefix,
        base_prefix=sys.base_prefix,
        base_executable=os.path.realpath(base),
        stdlib=sysconfig.get_path("stdlib"),
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        has_ipython=importlib.util.find_spec("IPython") is not None,
        folders=[sys.prefix, sys.base_prefix, sys.base_exec_prefix]
        + [root(hop) for hop in hops]
        + paths
        + libraries(),
        packages=[path for path in paths if path.endswith(("site-packages", "dist-packages"))],
    )
    return facts


print(json.dumps(describe()))
