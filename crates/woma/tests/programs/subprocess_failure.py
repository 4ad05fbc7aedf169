# program: run a command that fails, with check=True
# habit: 22
# outcome: raised
# sees: CalledProcessError
# sees: exit status 3

import subprocess

subprocess.run(["sh", "-c", "echo oops >&2; exit 3"], check=True)
