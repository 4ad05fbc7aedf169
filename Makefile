# `make help` lists the targets. Nothing needs to be installed by hand on a Debian machine that has
# cargo, python3 and make: the scripts fetch what they need, and say what they cannot fetch.

.PHONY: help build serve test lint format bench

help: ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build: ## Build the release binary, target/release/woma
	cargo build --release -p woma

serve: build ## Build, make the Python environment, check the walls (the network server is not there yet)
	scripts/prerequisites
	target/release/woma env create
	target/release/woma doctor
	@echo "There is no network server in this version: use 'target/release/woma run'." >&2
	@exit 1

test: ## Run every test, as root also those of an ordinary user
	scripts/prerequisites
	scripts/test

lint: ## Formatting and lints, as the tests demand them
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

format: ## Format the code
	cargo fmt --all

bench: build ## Measure the promised numbers beside Jupyter, a subprocess, RestrictedPython
	scripts/prerequisites
	target/release/woma bench --compare jupyter,subprocess,restricted-python
