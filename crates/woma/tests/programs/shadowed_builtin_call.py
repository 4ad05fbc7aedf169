# program: call a builtin that an earlier call shadowed
# habit: 37
# session: continues redefined_builtins
# outcome: raised
# sees: TypeError: 'list' object is not callable
# sees: Hint:

values = list(range(3))
