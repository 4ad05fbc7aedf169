# program: define a class, to be used by later calls
# sees: Variables: BankAccount: type
# sees: account: BankAccount

class BankAccount:
    """A bank account that refuses overdrafts."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError(f"insufficient funds: {self.balance} < {amount}")
        self.balance -= amount
        return self.balance

account = BankAccount("Alice", 100);
