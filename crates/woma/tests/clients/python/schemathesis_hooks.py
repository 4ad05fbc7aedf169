"""Values that must not repeat: the same example is sent many times, and would be refused as such."""

import itertools
import re

import schemathesis

NUMBERS = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[!-~]{1,128}", key):
        case.headers["Idempotency-Key"] = f"key-{next(NUMBERS)}"
    if case.path == "/api/v1/keys" and isinstance(case.body, dict) and case.body.get("name") == "laptop":
        case.body["name"] = f"laptop-{next(NUMBERS)}"
