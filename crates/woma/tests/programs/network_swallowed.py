# program: catch the network's error and go on
# habit: 32
# sees: Could not fetch
# sees: using sample data
# sees: the network is disabled in this sandbox

import urllib.request

try:
    urllib.request.urlopen("https://example.com/prices.json", timeout=5)
except Exception as error:
    print("Could not fetch:", type(error).__name__)
    print("using sample data")
