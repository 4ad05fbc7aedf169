# program: call a program that is not installed
# outcome: raised
# sees: Hint: There is no program `weather-cli` here.

import subprocess

subprocess.run(["weather-cli", "--city", "Oslo"])
