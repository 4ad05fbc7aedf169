"""profiles: open tiers tiers+all power-interpreter
Letters that Python takes for others."""
ｅｖａｌ("1")
𝓮𝔁𝓮𝓬("x")
x.__ſubclasses__
x.__ｇlobals__
import ｏｓ
