# `make help` lists the targets. Nothing needs to be installed by hand on a Debian machine that has
# cargo, python3 and make: the scripts fetch what they need, and say what they cannot fetch.

.PHONY: help build install dev-install build-sandbox test-sandbox serve serve-http dev test test-vm test-fidelity fuzz soak test-bare wheel docs lint format bench

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

build: ## Build the release binary, target/release/woma
	scripts/prerequisites
	cargo build --release -p woma

install: build ## Build, and make the Python environment
	target/release/woma env create

wheel: ## Build the wheels of uvx and pip, in dist
	scripts/prerequisites
	scripts/wheel dist

docs: ## Make the documents a site with a search, target/site/index.html
	scripts/docs target/site

serve: install ## Build, make the Python environment, and serve on http://127.0.0.1:8080
	target/release/woma serve

serve-http: install ## The same on port 9000, for an MCP gateway
	target/release/woma serve --preset ibm-sandbox

dev-install: install ## The same as install, and what the tests need
	scripts/prerequisites tests

build-sandbox: install ## Make the Python environment of sessions, which containers show as their root

test-sandbox: build-sandbox ## Examine the isolation on this machine, and run a program in it
	scripts/prerequisites tests
	target/release/woma doctor
	target/release/woma run -c 'import numpy; print("the sandbox works, numpy", numpy.__version__)'

dev: ## Speak MCP on standard input and output
	@$(MAKE) --no-print-directory install >&2
	@target/release/woma stdio

test: ## Run every test, as root also those of an ordinary user
	scripts/prerequisites tests
	scripts/test

test-vm: ## Run a part of them in a virtual machine with systemd and cgroup v2, as root
	scripts/prerequisites vm
	scripts/test-vm

test-fidelity: ## Run suites of others inside a session and outside, and compare
	scripts/prerequisites
	scripts/test-fidelity

test-bare: ## Build and serve on a fresh Debian with only cargo, python3 and make, as root
	scripts/prerequisites bare
	scripts/test-bare

fuzz: ## Fuzz every reader of hostile bytes, FUZZ_SECONDS (300) each
	scripts/prerequisites
	scripts/fuzz

soak: ## Load, kills and restarts for long, with a verdict: SOAK_SECONDS (600), SOAK_KILLS (200)
	scripts/prerequisites tests
	scripts/soak

lint: ## Formatting and lints, as the tests demand them
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

format: ## Format the code
	cargo fmt --all

bench: build ## Measure the promised numbers beside Jupyter, a subprocess, RestrictedPython
	target/release/woma bench --compare jupyter,subprocess,restricted-python
