# attack: raise an exception with a gigantic message and a long chain of causes
# must end: raised or out_of_memory or timed_out
# limits: wall=10s output=1m memory=512m
# with: neighbour
error = None
for number in range(30):
    try:
        try:
            raise error if error else ValueError("x" * 20_000_000)
        except BaseException as cause:
            raise RuntimeError(number) from cause
    except RuntimeError as wrapped:
        error = wrapped
raise error
