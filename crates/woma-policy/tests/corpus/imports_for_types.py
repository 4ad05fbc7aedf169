"""profiles: open tiers tiers+all power-interpreter
Imports that only type checkers see."""
from typing import TYPE_CHECKING
import typing
if TYPE_CHECKING:
    import os
if typing.TYPE_CHECKING:
    from subprocess import Popen
else:
    import socket
