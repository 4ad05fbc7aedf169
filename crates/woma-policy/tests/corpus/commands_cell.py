%%bash
# profiles: open tiers tiers+all power-interpreter
# A cell for another program.
import os
echo 'not python
