# program: fail in a method that an earlier call defined: its line is shown
# session: continues class_step_2
# outcome: raised
# sees: in withdraw
# sees: raise ValueError(f"insufficient funds
# sees: ValueError: insufficient funds: 70 < 71

account.withdraw(71)
