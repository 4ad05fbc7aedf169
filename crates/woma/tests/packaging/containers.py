"""The image, Compose, nginx, Kubernetes, Helm, Railway and AppArmor."""

import fnmatch
import ipaddress
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import yaml
from known import PRESETS, ROOT, TOOLS, routes, run, shown, tool, valid


def size(text):
    """Bytes of a limit such as `2G` or `512Mi`."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)i?B?", str(text)).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def dockerfile():
    """The image: linted, built from files that are sent, without root and without a key."""
    run(tool("hadolint"), ROOT / "Dockerfile")
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    last = text.rsplit("\nFROM ", 1)[1]
    environment = dict(re.findall(r"(\w+)=(\S+)", re.search(r"^ENV (.*)$", last, re.MULTILINE)[1]))
    assert environment["HOST"] == "0.0.0.0" and not re.search(r"API_KEY\w*=", text), environment
    valid(environment | {"API_KEY": "k" * 16})
    exposed = set(map(int, re.search(r"^EXPOSE (.*)$", last, re.MULTILINE)[1].split()))
    assert exposed == {shown(preset)["port"] for preset in PRESETS}, exposed
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE), "the image has a user"
    assert "HEALTHCHECK" in last and "probe.py" in last
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    assert f"FROM rust:{version}-" in text, "the compiler is the one of Cargo.toml"


def context():
    """What .dockerignore lets through is enough for cargo, and for every COPY."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert patterns[0] == "*", "everything is left out but what is named"
    kept = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    with tempfile.TemporaryDirectory() as folder:
        for name in kept:
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=lambda _, names: fnmatch.filter(names, "__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
        # Of this platform only: crates of others are not here without a network.
        host = re.search(r"^host: (\S+)$", run(os.environ["CARGO"], "version", "--verbose"), re.MULTILINE)[1]
        metadata = run(os.environ["CARGO"], "metadata", "--locked", "--offline", "--format-version=1",
                       "--filter-platform", host, cwd=folder)
        ours = [package for package in json.loads(metadata)["packages"] if package["source"] is None]
        assert len(ours) > 3, ours
        targets = [target for package in ours for target in package["targets"]]
        missing = [target["src_path"] for target in targets if not Path(target["src_path"]).exists()]
        assert not missing, missing
        for source in re.findall(r"^COPY (?!--from)(\S+) ", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
            assert Path(folder, source).exists(), f"COPY {source}"


def compose():
    """Compose: its schema, its settings, and every option that sessions and hardening need."""
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml")
    text = (ROOT / "docker-compose.yml").read_text()
    # As Compose fills in variables that are not set; `:?` demands one.
    filled = re.sub(r"\$\{(\w+):\?[^}]*\}", "given-for-the-test", text)
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", filled)
    whole = yaml.safe_load(filled)
    woma, nginx, database = (whole["services"][name] for name in ("woma", "nginx", "db"))

    settings = valid(woma["environment"])
    port = str(settings["port"])
    assert woma["ports"] == [f"127.0.0.1:{port}:{port}"], "without a proxy, only this machine reaches it"
    assert woma["cap_drop"] == ["ALL"] and "cap_add" not in woma and woma["read_only"] is True
    assert woma["user"] == "10001:10001" and woma["restart"] == "unless-stopped"
    options = set(woma["security_opt"])
    profile = "packaging/container/seccomp.json"
    assert options == {"no-new-privileges:true", f"seccomp={profile}", "apparmor=unconfined", "systempaths=unconfined"}
    assert (ROOT / profile).exists() and "privileged" not in woma
    guide = (ROOT / "docs/DEPLOYMENT.md").read_text()
    assert all(f"--security-opt {option}" in guide for option in options), "the guide has the same options"
    limits = woma["deploy"]["resources"]["limits"]
    assert limits["cpus"] == "2" and size(limits["memory"]) == 2 << 30
    assert settings["max_memory_mb"] <= size(limits["memory"]), settings["max_memory_mb"]

    subnet, = whole["networks"]["front"]["ipam"]["config"]
    assert ipaddress.ip_network(subnet["subnet"]) == ipaddress.ip_network(woma["environment"]["TRUST_PROXY"])
    assert whole["networks"]["back"]["internal"] and database["networks"] == ["back"]
    assert "ports" not in database and nginx["profiles"] == ["production"]
    source = nginx["volumes"][0].split(":")[0]
    assert (ROOT / source).exists(), source
    for service in whole["services"].values():
        for volume in service.get("volumes", []):
            name = volume.split(":")[0]
            assert name.startswith("./") or name in whole["volumes"], name
    assert re.search(r"^# .*`read_only: false`", text.replace("    # ", "# "), re.MULTILINE), "the switch is explained"


def containers(template):
    return template["spec"].get("initContainers", []) + template["spec"]["containers"]


def pod(template, expected_port):
    """One pod of Woma: its settings, its probes, and the options that sessions need."""
    spec, (container,) = template["spec"], template["spec"]["containers"]
    plain = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    secret = {each["name"]: "k" * 16 for each in container["env"] if "valueFrom" in each}
    assert "API_KEY" in secret, "the key comes from a secret"
    if "DATABASE_URL" in secret:
        secret["DATABASE_URL"] = "postgres://user:password@host/woma"
    settings = valid(plain | secret | {"HOST": "0.0.0.0"}, plain["COMPAT_PROFILE"])
    assert settings["port"] == container["ports"][0]["containerPort"] == expected_port, settings["port"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in routes(), container[probe]
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    assert spec["hostUsers"] is False, "`procMount: Unmasked` is allowed with it only"
    assert spec["securityContext"]["seccompProfile"]["type"] == "Localhost"
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001
    own = container["securityContext"]
    assert own["procMount"] == "Unmasked" and own["appArmorProfile"]["type"] == "Unconfined", own
    assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    assert settings["max_memory_mb"] <= size(container["resources"]["limits"]["memory"])
    return container


def validated(text):
    """The objects of a stream of YAML, each valid by the schemas of Kubernetes."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        run(tool("kubernetes-validate"), "--strict", file.name)
    objects = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def kubernetes():
    """The manifests: three servers as the older system had them, and a profile on every node."""
    folder = ROOT / "packaging/kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    resources = kustomization["resources"]
    assert set(resources) | {"kustomization.yaml"} == {path.name for path in folder.iterdir()}
    objects = validated("\n---\n".join((folder / name).read_text() for name in resources))
    deployment = objects["Deployment", "sandbox-mcp"]["spec"]
    container = pod(deployment["template"], 16010)
    assert deployment["replicas"] == 3 and container["name"] == "sandbox-mcp"
    key = next(each for each in container["env"] if each["name"] == "API_KEY")
    assert key["valueFrom"]["secretKeyRef"] == {"name": "sandbox-mcp-secret", "key": "api-key"}
    assert container["resources"] == {"limits": {"memory": "1Gi", "cpu": "1000m"},
                                      "requests": {"memory": "512Mi", "cpu": "500m"}}
    service = objects["Service", "sandbox-mcp"]["spec"]
    assert service["sessionAffinity"] == "ClientIP" and service["ports"][0]["port"] == 16010
    labels = deployment["template"]["metadata"]["labels"]
    policy = objects["NetworkPolicy", "sandbox-mcp"]["spec"]
    assert service["selector"] == policy["podSelector"]["matchLabels"] == labels
    generator, = kustomization["configMapGenerator"]
    name, source = generator["files"][0].split("=")
    assert (folder / source).resolve() == ROOT / "packaging/container/seccomp.json"
    installer = objects["DaemonSet", "woma-seccomp"]["spec"]["template"]
    used = deployment["template"]["spec"]["securityContext"]["seccompProfile"]["localhostProfile"]
    put = containers(installer)[0]["command"][-1]
    assert put == f"/node/{used}" and containers(installer)[0]["command"][1] == f"/profile/{name}"
    assert installer["spec"]["volumes"][0]["configMap"]["name"] == generator["name"]


def helm():
    """The chart: linted, rendered by helm itself, and refused where it could not work."""
    chart = ROOT / "packaging/helm/woma"
    key = "apiKey.existingSecret=secret"

    def rendered(*values):
        flags = [flag for value in values for flag in ("--set", value)]
        profile = f"seccomp.profile={ROOT}/packaging/container/seccomp.json"
        with tempfile.TemporaryDirectory() as home:
            own = {"HOME": home, "PATH": os.environ["PATH"]}
            return subprocess.run(
                [tool("helm"), "template", "woma", chart, "--kube-version", "1.35.0", *flags, "--set-file", profile],
                capture_output=True, text=True, env=own)

    def objects(*values):
        made = rendered(*values)
        assert made.returncode == 0, made.stderr
        return validated(made.stdout)

    run(tool("helm"), "lint", "--strict", chart, "--set", key, "--kube-version", "1.35.0")
    small = objects(key)
    pod(small["Deployment", "woma"]["spec"]["template"], 8080)
    assert ("PersistentVolumeClaim", "woma") in small and ("Ingress", "woma") not in small
    large = objects(key, "database.existingSecret=database", "replicas=3", "preset=sandbox-mcp", "port=16010",
                    "ingress.enabled=true", "ingress.tlsSecret=tls", "seccomp.install=true",
                    "networkPolicy.publicEgress=true", "settings.MAX_MEMORY_MB=512")
    pod(large["Deployment", "woma"]["spec"]["template"], 16010)
    assert {kind for kind, _ in large} == {"Deployment", "Service", "Ingress", "NetworkPolicy", "ConfigMap", "DaemonSet"}
    profile = large["ConfigMap", "woma-seccomp"]["data"]["seccomp.json"]
    assert json.loads(profile) == json.loads((ROOT / "packaging/container/seccomp.json").read_text())
    for wrong, said in [((), "apiKey.existingSecret"), ((key, "replicas=3"), "database.existingSecret"),
                        ((key, "preset=no-such"), "preset"), ((key, "unknown=1"), "unknown")]:
        refused = rendered(*wrong)
        assert refused.returncode != 0 and said in refused.stderr, f"{wrong}: {refused.stderr}"
    schema = json.loads((chart / "values.schema.json").read_text())
    assert schema["properties"]["preset"]["enum"] == PRESETS


def railway():
    """Railway's file: known keys, files and routes that exist, a command that the program has."""
    whole = tomllib.loads((ROOT / "railway.toml").read_text())
    assert set(whole) == {"build", "deploy"}
    assert whole["build"] == {"builder": "DOCKERFILE", "dockerfilePath": "Dockerfile"}
    deploy = whole["deploy"]
    assert set(deploy) == {"preDeployCommand", "healthcheckPath", "healthcheckTimeout", "restartPolicyType",
                           "restartPolicyMaxRetries"}, deploy
    assert deploy["healthcheckPath"] in routes() and deploy["restartPolicyType"] == "ON_FAILURE"
    command, = deploy["preDeployCommand"]
    run(*command.replace("woma", os.environ["WOMA_UNDER_TEST"], 1).split(), "--help")
    # As its file says, Railway's own variables are read.
    set_by_railway = {"PORT": "7777", "RAILWAY_PUBLIC_DOMAIN": "x.up.railway.app", "API_KEY": "k" * 16}
    settings = shown("power-interpreter", **set_by_railway)
    assert settings["port"] == 7777 and "x.up.railway.app" in settings["public_base_url"], settings
    assert settings["host"] == "0.0.0.0"


def systemd():
    """The units name settings that exist, and start a command that exists."""
    for path in sorted((ROOT / "packaging/systemd").rglob("*.*")):
        if path.is_dir():
            continue
        text = path.read_text()
        named = dict(re.findall(r"^Environment=(\w+)=(\S+)$", text, re.MULTILINE))
        # `%S` and its like are folders that systemd fills in.
        valid({name: value.replace("%", "/") for name, value in named.items()})
        for command in re.findall(r"^ExecStart=\S*woma (\w+)", text, re.MULTILINE):
            run(os.environ["WOMA_UNDER_TEST"], command, "--help")


def apparmor():
    """The AppArmor profile, by its own parser. Parsers before 4.0 do not know `userns`."""
    text = (ROOT / "packaging/apparmor/woma").read_text()
    debian = TOOLS / "debian"
    parser = next(path for path in (debian / "sbin/apparmor_parser", debian / "usr/sbin/apparmor_parser") if path.exists())
    version = re.search(r"version (\d+)\.", run(parser, "--version"))
    assert "\n  userns,\n" in text and "profile woma /usr/bin/woma " in text
    if int(version[1]) < 4:
        text = text.replace("\n  userns,\n", "\n").replace("<abi/4.0>", "<abi/3.0>")
    run(parser, "--base", debian / "etc/apparmor.d", "--skip-kernel-load", "--skip-cache", "--quiet", input=text)
    broken = subprocess.run([parser, "--base", debian / "etc/apparmor.d", "-Q", "-K"], input=text.replace("mount,", "mont,"),
                            capture_output=True, text=True)
    assert broken.returncode != 0, "the parser takes anything"
