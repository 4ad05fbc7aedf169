"""profiles: open tiers tiers+all power-interpreter
Functions of its own that are named as builtins."""
import re
import pandas as pd

def compile(text):
    return re.compile(text)

def input(prompt):
    return prompt

class Model:
    def eval(self):
        return self
    def exec(self, open=None):
        return open

pattern = compile("a+")
answer = input("?")
frame = pd.DataFrame({"a": [1]})
print(frame.eval("b = a + 1"), frame.query("a > 0"), Model().eval().exec())
for exit in [1]:
    print(exit)
