"""Blocks of the pages that the tests do not run, by page and beginning, each with its reason."""

NOT_RUN = {
    ("README.md", "make install"): "builds the release binary and the environment; tests use both as they are",
    ("README.md", "claude mcp add"): "Claude Code is not among the clients that the tests fetch",
    ("README.md", "curl http://localhost:4444/gateways"): "needs a ContextForge gateway and its token",
    ("docs/COMMANDS.md", "woma env lock > default.lock"): "downloads 600 MB and makes a second environment; "
                                                          "`environments.rs` covers wheelhouses",
}
