"""profiles: open tiers tiers+all power-interpreter
The names that system A has ready."""
df = pd.DataFrame({"a": np.arange(3)})
print(json.dumps({"x": 1}), csv, math.pi, statistics.mean([1]), datetime.datetime.now())
print(timedelta(1), timezone.utc, date.today(), collections.Counter("aab"), itertools.count())
print(functools, re.compile("x"), io.StringIO(), copy.copy([]), hashlib.md5(b""), base64)
print(Path("x"), Decimal("1"), Fraction(1, 2), Dict, List, Optional, Tuple, Set, Any)
print(dataclass, field, asdict, SANDBOX_DIR, pandas, numpy)
