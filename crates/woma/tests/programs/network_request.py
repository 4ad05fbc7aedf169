# program: call an address while the network is disabled
# habit: 32
# outcome: raised
# sees: Hint: The network is disabled in this sandbox
# sees: fetch_from_url
# at most: 2500

import requests

response = requests.get("https://api.example.com/v1/data", timeout=10)
print(response.json())
