# program: run unit tests inside the cell
# sees: Ran 2 tests
# sees: OK

import unittest

def add(a, b):
    return a + b

class TestAdd(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual(add(1, 2), 3)

    def test_strings(self):
        self.assertEqual(add("a", "b"), "ab")

if __name__ == "__main__":
    unittest.main(argv=["first-arg-is-ignored"], exit=False)
