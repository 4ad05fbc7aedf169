"""profiles: open tiers tiers+all power-interpreter
Modules through others."""
import random, json, collections
random._os.system('id')
json.decoder.scanner
collections._sys.modules
import statistics as s
s.sys.exit()
import sys
sys.modules['os'].system('id')
import asyncio
asyncio.subprocess
def f(random):
    return random._os
