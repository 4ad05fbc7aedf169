"""Blocks of the pages that the tests do not run, by page and beginning, each with its reason."""

NOT_RUN = {
    ("README.md", "make install"): "builds the release binary and the environment; tests use both as they are",
    ("README.md", "claude mcp add"): "Claude Code is not among the clients that the tests fetch",
    ("README.md", "curl http://localhost:4444/gateways"): "needs a ContextForge gateway and its token",
    ("docs/COMMANDS.md", "woma env lock > default.lock"): "downloads 600 MB and makes a second environment; "
                                                          "`environments.rs` covers wheelhouses",
    ("docs/DEPLOYMENT.md", "install -m 755"): "installs a service of the machine; `make test-vm` runs the units",
    ("docs/DEPLOYMENT.md", "make build"): "builds the release binary; `packaging.rs` builds and unpacks the package",
    ("docs/DEPLOYMENT.md", "make wheel"): "builds the release binary; `packaging.rs` builds, installs and runs the wheel",
    ("docs/DEPLOYMENT.md", "docker build"): "needs Docker; `packaging.rs` checks the image and its options",
    ("docs/DEPLOYMENT.md", "docker run"): "needs Docker",
    ("docs/DEPLOYMENT.md", "podman run"): "`containers.rs` runs containers with these options",
    ("docs/DEPLOYMENT.md", "API_KEY="): "needs Docker; `packaging.rs` checks docker-compose.yml",
    ("docs/DEPLOYMENT.md", "apt-get install crun"): "installs a package; `it/containers.rs` serves with every runtime",
    ("docs/DEPLOYMENT.md", "kubectl"): "needs a cluster; `packaging.rs` renders and checks manifests and chart",
    ("docs/DEPLOYMENT.md", "install -m 644"): "loads a profile into the kernel; `packaging.rs` has it parsed",
}
