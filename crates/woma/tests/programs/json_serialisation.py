# program: write JSON with a numpy integer
# outcome: raised
# sees: Object of type int64 is not JSON serializable
# sees: Hint: JSON knows neither dates nor values of numpy

import json
import numpy as np

stats = {"count": np.int64(5)}
print(json.dumps(stats))
