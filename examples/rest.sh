#!/bin/sh
# REST with curl: uploads a file, runs code that reads it, downloads the file that the code wrote.
set -eu
url=${SERVER_URL:-http://127.0.0.1:8080}
session=example-rest

printf 'name,amount\na,10\nb,20\nc,30\n' | curl -sS -T - "$url/api/v1/sessions/$session/files/in.csv" >/dev/null

# One JSON object a line, as the code produces them.
curl -sSN "$url/api/v1/execute" -H 'Content-Type: application/json' -d '{"session_id": "'$session'", "code":
  "import pandas as pd\ntable = pd.read_csv(\"in.csv\")\nprint(len(table), \"rows\")\nint(table.amount.sum())"}'

curl -sS "$url/execute" -o /dev/null -d '{"session_id": "'$session'", "code":
  "open(\"out.csv\", \"w\").write(f\"total,{table.amount.sum()}\\n\")"}'
curl -sS "$url/api/v1/sessions/$session/files/out.csv"
curl -sS -X DELETE "$url/api/v1/sessions/$session" -o /dev/null
