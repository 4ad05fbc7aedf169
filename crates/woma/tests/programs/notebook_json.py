# program: a notebook file sent as code
# habit: 46
# sees: rows: 3
# not: execution_count

{"cells": [
  {"cell_type": "markdown", "metadata": {}, "source": ["# Title"]},
  {"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [],
   "source": ["rows = [1, 2, 3]\n"]},
  {"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [],
   "source": ["print('rows:', len(rows))"]}
 ], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
