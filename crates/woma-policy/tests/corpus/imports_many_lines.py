"""profiles: open tiers tiers+all power-interpreter
Imports over several lines."""
from collections import (
    OrderedDict,
    defaultdict as dd,  # os
)
from os import (
    path,
    listdir,
)
import json, \
    os, sys as system
import datetime; from datetime import datetime as now
