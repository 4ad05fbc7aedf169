"""The part of `make test-vm` that runs in the virtual machine, as root; its output is the result.

Each check is a line that begins with `ok` or `FAILED`; the last line counts them.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request

PAYLOAD = pathlib.Path("/srv/payload")
GROUPS = pathlib.Path("/sys/fs/cgroup")
SETTINGS = json.loads((PAYLOAD / "vm.json").read_text())
SLOW = SETTINGS["slow"]
# The default environment, and one of Debian's own packages that starts in a quarter of the time.
ENVIRONMENT = f"/srv/envs/{SETTINGS['env']}"
PLAIN = "/srv/plain"
SECRET = "WOMA_ATTACK_SECRET=planted-secret-7351"
SERVER = "http://127.0.0.1:8080"
MIB = 1 << 20

# What runs of the sandbox's own tests: groups of `cells`, beginnings of names of `attacks`.
TRIALS = "limits"
ATTACKS = (
    "bomb_memory_bytearray bomb_memory_children bomb_memory_dev_shm bomb_memory_mmap bomb_memory_subprocess bomb_fork "
    "bomb_processes bomb_socket_buffers sys_ proc_id_maps proc_masked proc_memory_of_init proc_sys proc_write "
    "priv_clone3 priv_setns priv_unshare priv_capset priv_setuid_root priv_status session_kill outlive_daemon"
)

passed = failed = 0


def tell(text):
    print(text, flush=True)


def report(name, problem=None, took=None):
    global passed, failed
    if problem is None:
        passed += 1
    else:
        failed += 1
    took = "" if took is None else f" ({took:.1f} s)"
    tell(f"ok {name}{took}" if problem is None else f"FAILED {name}{took}: {problem}")


def check(name, test, *arguments):
    """Runs one check; what it raises is its failure. Gives what it returns, or None."""
    started = time.monotonic()
    try:
        result = test(*arguments)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, AssertionError):
            text += "\n" + traceback.format_exc()
        report(name, text, time.monotonic() - started)
        return None
    report(name, None, time.monotonic() - started)
    return result


def output(*command, status=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 * SLOW)
    assert done.returncode == status, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def until(what, look, seconds=10):
    """Waits until `look` gives something true, and gives that."""
    end = time.monotonic() + seconds * SLOW
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {seconds * SLOW} s: {what}"
        time.sleep(1)
    return seen


# Users, and how each has a program run in a group of its own.

ROOT = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "-p", "Delegate=yes"]
WOMA = [*ROOT, "-p", "User=woma", "-p", "Group=woma"]
AS_GUEST = ["runuser", "-u", "guest", "--", "env", "XDG_RUNTIME_DIR=/run/user/1000", "HOME=/home/guest"]
GUEST = [*AS_GUEST, "systemd-run", "--user", "--quiet", "--wait", "--pipe", "--collect", "-p", "Delegate=yes"]
GUEST_SCOPE = [*AS_GUEST, "systemd-run", "--user", "--quiet", "--scope", "-p", "Delegate=yes"]


def examined(prefix, data, environment):
    text = output(*prefix, "/usr/local/bin/woma", "--data-dir", data, "--env", environment, "doctor", "--json")
    found = json.loads(text)
    return found["isolation"], {layer["name"]: layer for layer in found["layers"]}


def doctor(prefix, data, environment=PLAIN):
    """Every wall stands, the limits are held by cgroup v2, and a cell was opened in it."""
    isolation, layers = examined(prefix, data, environment)
    # Full takes what not every machine has: quotas of the disk, the newest Landlock.
    assert isolation in ("full", "strong"), layers
    assert layers["limits"]["state"] == "enforced", layers["limits"]
    assert "cgroup v2" in layers["limits"]["detail"], layers["limits"]
    for wall in ("namespaces", "seccomp", "cell"):
        assert layers[wall]["state"] == "enforced", layers[wall]
    tell(f"   {layers['kernel']['detail']}; landlock {layers['landlock']['detail']}; {layers['cell']['detail']}")


def doctor_without_group(data):
    """An ordinary user without a delegated group is told so, and how to get one."""
    _, layers = examined(AS_GUEST, data, PLAIN)
    limits = layers["limits"]
    assert limits["state"] == "partly" and "watchdog" in limits["detail"], limits
    assert "Delegate=yes" in limits["fix"], limits
    assert layers["cell"]["state"] == "enforced", layers["cell"]


def program(who, prefix, name, only, environment):
    """One of the sandbox's test programs; each of its tests is a check here."""
    started = time.monotonic()
    settings = [f"WOMA_TEST_ENV={environment}", f"WOMA_TEST_ATTACKS={PAYLOAD}/attack-files", SECRET]
    settings += [f"WOMA_TEST_SLOW={SLOW}", f"WOMA_TEST_ONLY={only}", "WOMA_TEST_GROUPS=cgroup v2"]
    settings = [word for setting in settings for word in ("-E", setting)]
    command = [*prefix, *settings, str(PAYLOAD / name)]
    text = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            text += line
            if ended := re.match(r"test (\S+) +\.\.\. (\S+)", line):
                problem = None if ended[2] == "ok" else "see below"
                report(f"{who}: {name}: {ended[1]}", problem)
    verdict = re.search(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", text)
    assert verdict and process.returncode == 0, f"status {process.returncode}\n{text}"
    assert int(verdict[1]) > 0 and int(verdict[3]) == 0, verdict[0]
    tell(f"   {who}: {name}: {verdict[1]} tests in {time.monotonic() - started:.0f} s")


# The service.


class Service:
    """One of the units of packaging/systemd, with what it is called for its user."""

    def __init__(self, who, systemctl, group, unit="woma.service"):
        self.who, self.systemctl, self.group, self.unit = who, systemctl, GROUPS / group, unit

    def control(self, *words):
        return output(*self.systemctl, *words)

    def show(self, name):
        return self.control("show", "--value", "--property", name, self.unit).strip()

    def groups(self):
        return sorted(path for path in self.group.glob("woma-*-*/cell-*") if path.is_dir())

    def start(self):
        self.control("daemon-reload")
        self.control("start", self.unit)
        self.until_healthy()

    def until_healthy(self):
        def look():
            try:
                found = health()
            except OSError:
                is_starting = self.show("ActiveState") in ("active", "activating")
                assert is_starting and self.show("Result") != "exit-code", self.log()
                return None
            return found if found["isolation"] != "examining" else None

        return until("the server is healthy", look, 30)

    def log(self):
        return subprocess.run(["journalctl", "--no-pager", "-n", "30"], capture_output=True, text=True).stdout


def health():
    with urllib.request.urlopen(f"{SERVER}/health", timeout=60) as reply:
        return json.load(reply)


def post(path, **body):
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=60 * SLOW)


def execute(code, session="a", **more):
    with post("/execute", code=code, session_id=session, **more) as reply:
        return json.load(reply)


def is_healthy(service):
    found = service.until_healthy()
    assert found["status"] == "healthy" and found["isolation"] in ("full", "strong", "examining"), found
    assert found["limits_held_by"] == {"who": "cgroup v2"}, found["limits_held_by"]
    limits = [layer for layer in found["layers"] if layer["name"] == "limits"]
    assert limits[0]["state"] == "enforced" and "cgroup v2" in limits[0]["detail"], limits


def has_groups(service):
    """The session's process is in a group with every limit, below the unit's own."""
    assert execute("kept = 1\n6 * 7")["result"] == 42
    busy = [path for path in service.groups() if (path / "cgroup.procs").read_text().strip()]
    assert busy, list(service.group.glob("*"))
    for path in busy:
        read = lambda name: (path / name).read_text().strip()
        figures = {name: read(name) for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")}
        expected = {"memory.max": str(2048 * MIB), "memory.swap.max": "0", "pids.max": "256"}
        assert figures == {**expected, "cpu.max": "200000 100000"}, figures
    owner = {path.stat().st_uid for path in busy}
    assert len(owner) == 1, owner
    assert not (service.group / "cgroup.procs").read_text().strip(), "the server stayed in the unit's own group"


# Shared memory is not what an allocation of Python's fails by, and the error is swallowed.
DEAF_HOARD = """
import mmap
h = []
while True:
    try:
        m = mmap.mmap(-1, 4 << 20)
        m.write(bytes(range(256)) * (16 << 10))
        h.append(m)
    except BaseException:
        pass
"""


def memory_is_held(service):
    """A session that is out of memory ends; the service, its neighbour and the swap space do not feel it."""
    execute("kept = 1", "neighbour")
    pid, used_before = service.show("MainPID"), swap_used()
    # Code that asks for too much is told so where it asks, and its session goes on.
    hoard = "h = []\nwhile True: h.append(b'x' * (4 << 20))"
    reply = execute(hoard, "hoard", memory_limit="256m", timeout=30 * SLOW)
    assert (reply["outcome"], reply["error"]["type"]) == ("raised", "MemoryError"), reply
    assert reply["kernel_info"]["session_persisted"], reply
    # Code that will not be told is ended.
    reply = execute(DEAF_HOARD, "deaf", memory_limit="256m", timeout=30 * SLOW)
    assert reply["outcome"] == "out_of_memory", reply
    assert swap_used() - used_before < 64 * MIB, f"{swap_used() - used_before} bytes of swap"
    assert execute("kept", "neighbour")["result"] == 1
    assert service.show("ActiveState") == "active" and service.show("MainPID") == pid, service.log()


def swap_used():
    figures = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    size = lambda name: int(figures[name].split()[0]) * 1024
    assert size("SwapTotal"), "the machine has no swap space"
    return size("SwapTotal") - size("SwapFree")


def processes_are_held(service):
    code = """
import os, signal, time
children = []
try:
    while len(children) < 1000:
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        children.append(pid)
except OSError as error:
    print(type(error).__name__)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
len(children)
"""
    reply = execute(code, "forks", timeout=60 * SLOW)
    assert reply["outcome"] == "completed" and 100 < reply["result"] <= 256, reply


def is_restarted(service):
    """A server that was killed is started again, and leaves neither a process nor a group."""
    execute("kept = 1")
    pid = service.show("MainPID")
    assert list(service.group.glob(f"woma-{pid}-*")), list(service.group.glob("*"))
    os.kill(int(pid), signal.SIGKILL)
    until("systemd starts it again", lambda: service.show("MainPID") not in ("0", pid), 10)
    service.until_healthy()
    assert execute("6 * 7", "b")["result"] == 42
    until("the groups of the dead server are gone", lambda: not list(service.group.glob(f"woma-{pid}-*")), 10)


def ends_in_order(service):
    """What runs when the service is stopped comes to its end, and then nothing is left."""
    code = "import time\nprint('begun')\ntime.sleep(5)\nprint('ended')"
    with post("/api/v1/execute", code=code, session_id="last") as reply:
        assert json.loads(reply.readline()) == {"text": "begun\n"}
        service.control("stop", "--no-block", service.unit)
        rest = [json.loads(line) for line in reply]
    assert rest == [{"text": "ended\n"}], rest
    until("the service has ended", lambda: service.show("ActiveState") == "inactive", 30)
    assert service.show("Result") == "success", service.log()
    assert not service.group.exists(), list(service.group.rglob("*"))


def serve(service):
    if check(f"{service.who}: the service starts", lambda: service.start() or True) is None:
        tell(service.log())
    else:
        check(f"{service.who}: every wall stands and cgroup v2 holds the limits", is_healthy, service)
        check(f"{service.who}: a session has a group with all limits", has_groups, service)
        check(f"{service.who}: memory is held and the service goes on", memory_is_held, service)
        check(f"{service.who}: processes are held", processes_are_held, service)
        check(f"{service.who}: a killed server is started again", is_restarted, service)
        check(f"{service.who}: what runs comes to its end at a stop", ends_in_order, service)
    subprocess.run([*service.systemctl, "stop", service.unit], check=False)


def prepare():
    """Puts program, units and data folders where a package would."""
    shutil.copy(PAYLOAD / "woma", "/usr/local/bin/woma")
    system, user = pathlib.Path("/etc/systemd/system"), pathlib.Path("/etc/systemd/user")
    user.mkdir(exist_ok=True)
    for unit, folder in (("woma.service", system), ("user/woma.service", user)):
        text = (PAYLOAD / "units" / unit).read_text()
        (folder / "woma.service").write_text(text.replace("/usr/bin/woma", "/usr/local/bin/woma"))
    for settings in (pathlib.Path("/etc/woma"), pathlib.Path("/home/guest/.config/woma")):
        settings.mkdir(parents=True)
        (settings / "woma.env").write_text(f"WOMA_ENV={PLAIN}\nSESSION_POOL_SIZE=1\n")
    subprocess.run(["chown", "-R", "guest", "/home/guest"], check=True)
    output("swapon", "-L", "swap")
    until("the person's systemd is there", lambda: os.path.exists("/run/user/1000/bus"))
    kind = os.statvfs(GROUPS) and output("stat", "-f", "-c", "%T", str(GROUPS)).strip()
    assert kind == "cgroup2fs", f"{GROUPS} is {kind}"


def unprivileged():
    folder = pathlib.Path("/etc/systemd/system/woma.service.d")
    shutil.copytree(PAYLOAD / "units/woma.service.d", folder)
    # Otherwise the folder is what the service of root has made of it.
    shutil.rmtree("/var/lib/woma", ignore_errors=True)


def doctors():
    check("a user's scope: doctor", doctor, GUEST_SCOPE, "/home/guest/woma")
    check("a user without a group: doctor", doctor_without_group, "/home/guest/woma")
    check("root: doctor", doctor, ROOT, "/root/woma", ENVIRONMENT)


def by_root():
    serve(Service("root", ["systemctl"], "system.slice/woma.service"))


def by_person():
    group = "user.slice/user-1000.slice/user@1000.service/app.slice/woma.service"
    serve(Service("a user's service", [*AS_GUEST, "systemctl", "--user"], group))


def by_system_user():
    check("User=: the drop-in", unprivileged)
    serve(Service("User=", ["systemctl"], "system.slice/woma.service"))


QUOTA = "woma-quota.service"
DISK_MB = 64
# Writes until it is refused, deletes the file while it is open, and writes again.
FILLER = """
import os
file = open('large', 'wb', buffering=0)
written, refused = 0, []
for attempt in range(2):
    try:
        while written < 1 << 30:
            written += file.write(bytes(1 << 20))
    except OSError as error:
        refused.append(error.errno)
    if attempt == 0:
        os.unlink('large')
file.close()
written, refused
"""


def quotas_hold():
    """On a file system with project quotas a session is refused at the line that writes, to the block."""
    folder = pathlib.Path("/srv/quota")
    folder.mkdir(exist_ok=True)
    output("mount", "-o", "prjquota", "LABEL=quota", str(folder))
    settings = ["-E", f"DISK_MB={DISK_MB}", "-E", "SESSION_POOL_SIZE=1"]
    start = ["systemd-run", "--quiet", "--collect", f"--unit={QUOTA}", "-p", "Delegate=yes", *settings]
    output(*start, "/usr/local/bin/woma", "--data-dir", str(folder / "data"), "--env", PLAIN, "serve")
    try:
        service = Service("quota", ["systemctl"], f"system.slice/{QUOTA}", QUOTA)
        found = service.until_healthy()
        disk = next(layer for layer in found["layers"] if layer["name"] == "disk")
        assert disk["state"] == "enforced" and "project quotas" in disk["detail"], disk
        for session in ("pooled", "second"):
            reply = execute(FILLER, session, timeout=60 * SLOW)
            assert reply["outcome"] == "completed", reply
            written, refused = reply["result"]
            # The same error twice: ENOSPC or EDQUOT; a deleted file that is open counts.
            assert (DISK_MB - 2) * MIB <= written <= DISK_MB * MIB, reply
            assert len(refused) == 2 and set(refused) <= {28, 122}, reply
            reply = execute("open('small', 'w').write('1')", session)
            assert reply["result"] == 1, reply
    finally:
        subprocess.run(["systemctl", "stop", QUOTA], check=False)


def quotas():
    check("root: project quotas hold a session's folder", quotas_hold)


def attacks():
    for who, prefix in (("User=", WOMA), ("root", ROOT)):
        check(f"{who}: all of attacks", program, who, prefix, "attacks", ATTACKS, PLAIN)


def trials():
    for who, prefix in (("User=", WOMA), ("root", ROOT)):
        check(f"{who}: all of cells", program, who, prefix, "cells", TRIALS, ENVIRONMENT)


PARTS = {
    "doctors": doctors,
    "root": by_root,
    "person": by_person,
    "system-user": by_system_user,
    "quotas": quotas,
    "attacks": attacks,
    "trials": trials,
}


def main():
    tell(f"   booted in {time.monotonic():.0f} s: {output('systemctl', '--version').splitlines()[0]}")
    check("the machine has systemd, cgroup v2 and swap", prepare)
    tell(f"   {output('uname', '-sr').strip()}")
    for part in SETTINGS["parts"] or PARTS:
        started = time.monotonic()
        PARTS[part]()
        tell(f"   {part}: {time.monotonic() - started:.0f} s")
    tell(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
