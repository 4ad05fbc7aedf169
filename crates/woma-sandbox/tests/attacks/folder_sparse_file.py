# attack: a file of a terabyte with nothing in it, for the server to read, compare or keep
# must end: completed or raised
# limits: file_size=2000g
# with: folder
import os
with open("report.csv", "wb") as file:
    file.truncate(1 << 40)
print("held")
