# attack: crash the compiler by source nested too deeply
# must end: raised or crashed
# limits: wall=10s memory=512m
for source in ("(" * 5000 + ")" * 5000, "-" * 300000 + "1", "a" + ".b" * 200000, "[" * 150 + "]" * 150 + "+" + "1+" * 200000 + "1"):
    try:
        compile(source, "bomb", "eval")
    except (SyntaxError, MemoryError, RecursionError):
        pass
raise ValueError("the compiler held")
