"""profiles: open tiers tiers+all power-interpreter
Attributes and builtins by names that are made at run time: left to the run."""
name = "".join(["__sub", "classes__"])
getattr(object, name)()
getattr(object, "%s" % name)
getattr(object, f"__{'globals'}__")
