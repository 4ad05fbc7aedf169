# program: convert between time zones
# sees: New York: 2024-03-10 03:30:00-04:00
# sees: 2024-12-25 is a Wednesday
# sees: Days: 366

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

utc = datetime(2024, 3, 10, 7, 30, tzinfo=timezone.utc)
print("New York:", utc.astimezone(ZoneInfo("America/New_York")))
print(date(2024, 12, 25).strftime("%Y-%m-%d is a %A"))
print("Days:", (date(2025, 1, 1) - date(2024, 1, 1)).days)
