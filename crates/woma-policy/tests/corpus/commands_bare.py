"""profiles: open tiers tiers+all power-interpreter
Lines that are no Python and meant for pip."""
import math
pip install pandas
python -m pip install numpy
print(math.pi)
