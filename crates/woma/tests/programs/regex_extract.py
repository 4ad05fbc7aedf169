# program: extract addresses and count words
# sees: ['ann@example.com', 'bob@test.org']
# sees: [('the', 3), ('fox', 2)]

import re
from collections import Counter

text = "Mail ann@example.com or bob@test.org. The fox saw the other fox in the wood."
print(re.findall(r"[\w.]+@[\w.]+\.\w+", text))
words = re.findall(r"[a-z]+", text.lower())
print(Counter(w for w in words if w in ("the", "fox", "wood")).most_common(2))
