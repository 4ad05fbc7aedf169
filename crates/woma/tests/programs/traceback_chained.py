# program: raise one error from another
# outcome: raised
# sees: ConfigError: bad config

import json

class ConfigError(Exception):
    pass

def read_config(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("bad config") from error

read_config("{'a': 1}")
