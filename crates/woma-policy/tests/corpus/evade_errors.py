"""profiles: open tiers tiers+all power-interpreter
What an exception carries."""
try:
    object().x
except AttributeError as error:
    error.obj.__class__.__base__
try:
    pass
except* ValueError as group:
    group.exceptions[0].__traceback__.tb_frame
