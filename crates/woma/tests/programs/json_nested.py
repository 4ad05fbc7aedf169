# program: flatten nested JSON into a frame
# files: flat.json
# sees: address.city
# sees: Paris

import json
import pandas as pd

records = [
    {"name": "Ann", "address": {"city": "Paris", "zip": "75001"}},
    {"name": "Ben", "address": {"city": "Rome", "zip": "00100"}},
]
flat = pd.json_normalize(records)
with open("flat.json", "w") as f:
    json.dump(flat.to_dict(orient="records"), f, indent=2)
print(flat)
