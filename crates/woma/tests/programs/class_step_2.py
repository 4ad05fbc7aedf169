# program: use the class of the earlier call
# session: continues class_step_1
# sees: Balance: 70
# sees: Rejected: insufficient funds: 70 < 500
# not: Variables

print("Balance:", account.withdraw(30))
try:
    account.withdraw(500)
except ValueError as error:
    print("Rejected:", error)
