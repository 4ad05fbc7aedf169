"""profiles: open tiers tiers+all power-interpreter
A method that calls itself."""
class Tree:
    def depth(self, node):
        return 1 + max(self.depth(child) for child in node)
