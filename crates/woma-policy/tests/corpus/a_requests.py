"""profiles: open tiers tiers+all power-interpreter
A request to the network."""
import requests
from urllib.request import urlopen
print(requests.get('https://example.com').status_code)
