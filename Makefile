# Everything a contributor or a newcomer runs. `make help` lists it; `make demo` and `make test` need nothing done before.
# A stamp in .venv stands for each finished step, so a repeated run costs nothing.

VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check
STAMPS := $(VENV)/stamps
SEED   ?= 1
RUNS   ?= 100000
ARGS   ?=

# Where a container says that Python writes no bytecode, each of the hundreds of processes of a test run compiles 430 modules.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo-setup setup-test jars demo demo-kafka demo-windows demo-cluster test test-servers test-system test-all lint format types sim sim-campaign laws-search bench chaos-embedded chaos store-kills soak docs wheel lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## virtual environment, dependencies, a Java runtime if none is found, pinned jars, all kernels: .venv/bin/hotspare
	@$(MAKE) --no-print-directory --jobs 2 $(STAMPS)/jars $(STAMPS)/kernels

demo-setup: ## what `make demo` needs: setup without the other kernels, the pinned jars and the archive of Spark's classes
	@$(MAKE) --no-print-directory --jobs 2 $(STAMPS)/jre $(STAMPS)/demo-kernels

setup-test: setup $(STAMPS)/test $(STAMPS)/servers ## setup, and what the checks need

demo: demo-setup ## kill engines under load and compare the output with an uninterrupted run (ARGS="--kills 5")
	$(VENV)/bin/hotspare demo $(ARGS)

demo-kafka: setup ## the same on three real Kafka brokers, one of which is stopped, and a ZooKeeper
	$(VENV)/bin/hotspare demo --bus kafka $(ARGS)

demo-windows: setup ## the demo with aggregate, join, pattern, Python and Lua windows: killed with patterns open and groups half full
	$(VENV)/bin/hotspare demo --project windows $(ARGS)

demo-cluster: setup ## the demo of a project in shards on two Spark applications with executors: these, Python workers and drivers are killed
	$(VENV)/bin/hotspare demo --cluster $(ARGS)

test: setup-test ## rules, units, cases, laws and simulation, in two processes, without servers and Spark (ARGS="tests/laws -x")
	$(PY) -m pytest -n 2 -m "not servers and not system" $(ARGS)

test-servers: setup-test ## contracts and adapters on real brokers, ZooKeeper and databases
	$(PY) -m pytest -n 2 -m "servers and not system" $(ARGS)

test-system: setup-test ## engine processes with kills, Spark, hosts of their own
	$(PY) -m pytest -n 2 -m system $(ARGS)

test-all: setup-test ## all three in one run, as .ci/run has it
	$(PY) -m pytest -n 2 $(ARGS)

lint: $(STAMPS)/test ## style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(STAMPS)/test ## put the formatting right
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(STAMPS)/test ## strict type check of src
	$(PY) -m mypy --strict src

sim: $(STAMPS)/test ## repeat one simulated cluster run: make sim SEED=7
	$(PY) -m tests.simulation.run --seed $(SEED) $(ARGS)

sim-campaign: $(STAMPS)/test ## many simulated cluster runs on all cores (RUNS=100000 SEED=1)
	$(PY) -m tests.simulation.campaign --runs $(RUNS) --seed $(SEED) $(ARGS)

laws-search: $(STAMPS)/test ## random graphs of windows, changelogs and clusters against the laws; what fails is made small (RUNS=100000 SEED=1)
	$(PY) -m tests.laws.search --runs $(RUNS) --seed $(SEED) $(ARGS)

bench: setup-test ## measure latency, throughput and fail-over; prints each number with its command
	$(PY) -m benchmarks $(ARGS)

chaos-embedded: setup-test ## kill, freeze and restart real engines on the SQLite bus in a loop
	$(PY) -m benchmarks.kill_loop $(ARGS)

chaos: setup-test ## every scenario of the kill campaign on real servers, each with a group of its own (ARGS="--only E2 --rounds 5")
	$(PY) -m tests.e2e.chaos.run $(ARGS)

store-kills: setup-test ## kill -9 the writer, the collector and the server at every step of a snapshot, for every store (ARGS="--only redis")
	$(PY) -m tests.contract.store_kills_campaign $(ARGS)

soak: setup-test ## an hour under a light, steady load: memory, files, rows and threads at start and end (ARGS="--site kafka")
	$(PY) -m benchmarks.soak $(ARGS)

docs: $(STAMPS)/test ## write the generated pages again: docs/errors.md, docs/scope.md, docs/commands.md, docs/log.md, docs/metrics.md, docs/expressions.md, docs/python-modules.md
	$(PY) -m tests.repo.errors_page
	$(PY) -m tests.repo.scope
	$(PY) -m tests.cli.commands_page
	$(PY) -m tests.telemetry.log_page
	$(PY) -m tests.telemetry.metrics_page
	$(PY) -m tests.expressions.reference_page
	$(PY) -m tests.scripting.python.modules_page

wheel: setup ## a wheel in dist/ that carries the machine code of all kernels for this Python: its engines compile nothing
	$(PY) .ci/build-wheel dist

lock: ## choose versions again from pyproject.toml and write the lock files
	.ci/lock

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- steps of the set-up -------------------------------------------------------------------------------------------------

$(STAMPS)/venv:
	.ci/venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# All dependencies but Spark, which kernels do not need: they compile while it is fetched.
$(STAMPS)/runtime: requirements.lock pyproject.toml $(STAMPS)/venv
	grep -v '^pyspark==' requirements.lock >$(STAMPS)/requirements
	$(PIP) install --no-deps -r $(STAMPS)/requirements
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/pyspark: requirements.lock .ci/install-pyspark $(STAMPS)/runtime
	$(PY) .ci/install-pyspark requirements.lock
	@touch $@

$(STAMPS)/test: requirements-test.lock $(STAMPS)/runtime $(STAMPS)/pyspark
	$(PIP) install --no-deps -r requirements-test.lock
	@touch $@

$(STAMPS)/servers: .ci/servers $(STAMPS)/venv
	@.ci/servers
	@touch $@

$(STAMPS)/jre: requirements-jre.lock $(STAMPS)/pyspark
	@if .ci/has-java 17; then echo "java: found"; else \
	  echo "java: none of version 17 or newer, installing one into $(VENV)"; $(PIP) install --no-deps -r requirements-jre.lock; fi
	@touch $@

# Without the jars everything runs, only slower; so a failure is one line, not the end. `make jars` tries again.
$(STAMPS)/jars: $(STAMPS)/jre
	@$(PY) -m hotspare.runners.spark.prepare || echo "jars: not fetched, Spark runs slower without them; 'make jars' tries again"
	@touch $@

$(STAMPS)/kernels: $(STAMPS)/runtime
	@$(PY) -m hotspare.host.kernels
	@touch $@

$(STAMPS)/demo-kernels: $(STAMPS)/runtime
	@$(PY) -m hotspare.host.kernels --project src/hotspare/demo/sensors.yaml
	@touch $@

jars: $(STAMPS)/jre ## fetch the pinned jars again
	$(PY) -m hotspare.runners.spark.prepare
