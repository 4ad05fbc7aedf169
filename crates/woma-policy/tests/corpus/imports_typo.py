"""profiles: open tiers tiers+all power-interpreter
Names that are nearly right."""
import maths
import jsno
import statistic
import zzz
