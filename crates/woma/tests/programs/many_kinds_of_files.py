# program: write files of many kinds, each of which gets a link
# habit: 51
# files: array.npz, log.jsonl, notes.md, page.xml, script.py, config.yaml, data.pkl

import json
import pickle
import numpy as np

np.savez("array.npz", a=np.arange(3))
open("log.jsonl", "w").write(json.dumps({"a": 1}) + "\n")
open("notes.md", "w").write("# Notes\n")
open("page.xml", "w").write("<a/>")
open("script.py", "w").write("print(1)\n")
open("config.yaml", "w").write("a: 1\n")
pickle.dump({"a": 1}, open("data.pkl", "wb"))
print("written")
