#!/bin/sh
# A job: it is submitted, its output is read while it runs, and its result when it has ended.
set -eu
url=${SERVER_URL:-http://127.0.0.1:8080}
field() { python3 -c 'import json, sys; print(str(json.load(sys.stdin)[sys.argv[1]]).rstrip())' "$1"; }

job=$(curl -sS "$url/api/v1/jobs" -d '{"code": "import time\nfor i in range(1, 4):\n    print(\"step\", i, flush=True)\n    time.sleep(0.2)\nsum(i * i for i in range(1, 4))"}' | field job_id)
# The stream ends with the job: lines of its output, then its status.
curl -sSN "$url/api/v1/jobs/$job/stream" -o /dev/null
curl -sS "$url/api/v1/jobs/$job/output?offset=0" | field text
status=$(curl -sS "$url/api/v1/jobs/$job" | field status)
echo "$status: $(curl -sS "$url/api/v1/jobs/$job/result" | field result)"
