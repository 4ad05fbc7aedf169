# program: parse a Python literal as JSON
# outcome: raised
# sees: ast.literal_eval

import json

data = json.loads("{'name': 'Ann', 'age': 30}")
