"""`python -m pip`."""

from __future__ import annotations

import sys

from pip import main

sys.exit(main())
