"""profiles: open tiers tiers+all power-interpreter
The module and the class of the same name."""
from datetime import datetime
print(datetime.now())
import datetime
print(datetime.timezone.utc)
