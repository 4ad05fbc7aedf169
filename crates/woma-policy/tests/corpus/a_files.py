"""profiles: open tiers tiers+all power-interpreter
Paths as models write them."""
import os
path = os.path.join('/tmp', 'report.csv')
pd.DataFrame({'a': [1]}).to_csv(path)
with open('/tmp/report.csv') as file:
    print(file.read())
print(os.listdir('.'), Path('x').exists())
