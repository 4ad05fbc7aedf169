"""Uses the client that was generated from the OpenAPI document: with_generated.py URL"""

import importlib
import pkgutil
import sys
import uuid
from io import BytesIO

import generated
from generated.api.code import run
from generated.api.datasets import list_datasets
from generated.api.files import list_files, read_file, write_file
from generated.api.jobs import cancel_job, get_job_result, submit_job
from generated.api.sessions import delete_session, list_sessions
from generated.models import Envelope, ExecuteBody, JobReply, Reply, SubmitJobBody, UnfinishedJob
from generated.types import File

modules = [module.name for module in pkgutil.walk_packages(generated.__path__, "generated.")]
assert len(modules) > 150, len(modules)
for name in modules:
    importlib.import_module(name)

client = generated.Client(base_url=sys.argv[1])
session = f"generated-{uuid.uuid4()}"

reply = run.sync(client=client, body=ExecuteBody(code="print('hi')\n[6 * 7]", session_id=session))
assert isinstance(reply, Reply) and reply.success, reply
assert (reply.stdout, reply.result, reply.session_id) == ("hi\n", [42], session), reply
failed = run.sync(client=client, body=ExecuteBody(code="1 / 0", session_id=session))
assert isinstance(failed, Reply) and failed.error.type_ == "ZeroDivisionError", failed

content = File(payload=BytesIO(b"\x00\xff"))
written = write_file.sync(session, "a.bin", client=client, body=content)
assert written.size_bytes == 2, written
assert read_file.sync(session, "a.bin", client=client).payload.read() == b"\x00\xff"
missing = read_file.sync(session, "b.bin", client=client)
assert isinstance(missing, Envelope) and missing.code == "not_found", missing
assert [file.path for file in list_files.sync(session, client=client).files] == ["a.bin"]

body = SubmitJobBody(code="import time\ntime.sleep(600)", session_id=session)
job = submit_job.sync(client=client, body=body)
running = get_job_result.sync(job.job_id, client=client)
assert isinstance(running, JobReply) and running.status in ("pending", "running"), running
cancel_job.sync(job.job_id, client=client)
ended = get_job_result.sync(job.job_id, client=client, wait=60)
assert isinstance(ended, (Reply, UnfinishedJob)) and not ended.success, ended

assert session in list_sessions.sync(client=client).sessions.to_dict()
assert list_datasets.sync(client=client).total >= 0
assert delete_session.sync(session, client=client).success
