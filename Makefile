# One command per wish, the same here and in CI. `make` alone lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.argosy-setup
DOCS_STAMP := $(VENV)/.argosy-docs
ENGINES_STAMP := $(VENV)/.argosy-engines

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-slow test-engines test-engines-slow test-browser coverage check format docs docs-generate coverage-torch soak kills fuzz bench clean clean-cache
SECONDS ?= 3600
# One more than cores: many tests wait, for a heartbeat that does not come or for a process that ends.
WORKERS ?= $(shell expr $$(nproc) + 1)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# torch first and by this very version: the CPU build that is asked for, not whatever the newest is.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: '$(PYTHON)' is not Python 3.11 or newer; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m argosy.engine.kernels
	@touch $@

setup: $(STAMP) ## make .venv with torch and Argosy, and build its kernels if there is a C++ compiler

quickstart: $(STAMP) ## train the ResNet of the quick start on two ranks, on an embedded data set (a minute or two)
	$(BIN)/fleetrun --nproc_per_node=2 examples/resnet/train_fleet_static.py \
		--layers 18 --image_size 32 --batch_size 16 --epochs 2 --class_dim 102

TESTS ?= tests
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)
test: $(STAMP) ## run the tests, without the slow ones
	$(PYTEST) -m "not slow and not engines"

test-slow: $(STAMP) ## run the slow tests: examples, command lines, all pairs of strategies, databases of torch, planted bugs
	$(PYTEST) -m "slow and not engines"
	$(BIN)/python -m tests.simulation --seeds 300

# Ranks and launchers are processes of their own, which coverage follows (pyproject.toml).
MARKS ?= not slow and not engines
coverage: $(STAMP) ## measure the line coverage of the tests, without the slow ones; with them: MARKS="not engines"; of a directory: TESTS=tests/engine/ops
	mkdir -p build/coverage && $(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal $(TESTS) --timeout=900 -m "$(MARKS)"; status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$status

# torch by its version again: a package of an engine must not replace it.
$(ENGINES_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0 -e '.[engines]'
	@touch $@

test-engines: $(ENGINES_STAMP) ## run jobs on Slurm, MPI, ssh, Ray and TorchX of this machine (11 minutes); engines that are missing are skipped
	$(BIN)/python tests/engines/install.py
	$(BIN)/python -m pytest tests/engines -m "engines and not slow" -rs

test-engines-slow: $(ENGINES_STAMP) ## run what waits for minutes, or needs a quiet machine: a time limit of Slurm, stragglers (5 minutes)
	$(BIN)/python tests/engines/install.py
	$(BIN)/python -m pytest tests/engines tests/jobs/test_stragglers.py -m "engines and slow" -rs

test-browser: $(ENGINES_STAMP) ## look at the dashboard, reports and timelines of jobs in Chromium (2 minutes); skipped if it is missing
	$(BIN)/python tests/engines/install.py
	$(BIN)/python -m pytest tests/browser -m engines -rs

check: $(STAMP) ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

format: $(STAMP) ## rewrite the files as ruff wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A stamp of its own: `make test` does not need the packages of the site.
$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(DOCS_STAMP) ## build the documentation site into build/site; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-generate: $(STAMP) ## write the generated tables and the pictures of the documentation
	$(BIN)/python -m docs.scripts.reference
	$(BIN)/python -m docs.scripts.pictures

coverage-torch: $(STAMP) ## compare with eager mode over torch's databases, and write docs/reference/torch-coverage.md (half an hour)
	$(BIN)/python -m tests.torch_db --jobs 2

soak: $(STAMP) ## simulate parameter-server jobs with faults for SECONDS (default 3600), one job per seed
	$(BIN)/python -m tests.simulation --seconds $(SECONDS)

kills: $(STAMP) ## kill, stop and partition servers and trainers 1,000 times, and check what trainers saw (half an hour)
	$(BIN)/python -m tests.histories.kills --kills 1000

fuzz: $(STAMP) ## load and run 100,000 mutated models under AddressSanitizer (an hour)
	$(BIN)/python -m tests.fuzz --count 100000

bench: $(STAMP) ## measure against torch eager and DDP, and write benchmarks/results/ (an hour and more)
	$(BIN)/python benchmarks/build.py
	$(BIN)/python benchmarks/resnet50_step.py
	$(BIN)/python benchmarks/amp_step.py resnet50 --batch 8 16 --compiled
	$(BIN)/python benchmarks/amp_step.py transformer
	$(BIN)/python benchmarks/amp_step.py ranks
	$(BIN)/python benchmarks/amp_step.py memory --batch 8 16
	$(BIN)/python benchmarks/amp_accuracy.py
	$(BIN)/python benchmarks/mlp_step.py
	$(BIN)/python benchmarks/fusion.py
	$(BIN)/python benchmarks/defaults.py
	$(BIN)/python benchmarks/bn_act.py
	$(BIN)/python benchmarks/fused_optimizer.py
	$(BIN)/python benchmarks/depthwise.py --keep
	$(BIN)/python benchmarks/kernel_search.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/recompute.py
	$(BIN)/python benchmarks/distributed_step.py one-host
	$(BIN)/python benchmarks/distributed_step.py two-hosts
	$(BIN)/python benchmarks/all_reduce.py one-host
	$(BIN)/python benchmarks/all_reduce.py two-hosts
	$(BIN)/python benchmarks/exposed.py
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/ps_dense.py
	$(BIN)/python benchmarks/ps_durability.py
	$(BIN)/python benchmarks/ps_lookup.py
	$(BIN)/python benchmarks/ps_wide_and_deep.py
	$(BIN)/python benchmarks/ps_modes.py

clean: ## remove .venv and caches; the user's cache: make clean-cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

CACHE = $(or $(ARGOSY_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/argosy)
clean-cache: ## remove what Argosy has built in ARGOSY_CACHE: kernels, measurements, drawn data sets (not yours)
	rm -rf '$(CACHE)'/kernels '$(CACHE)'/choices '$(CACHE)'/inductor '$(CACHE)'/dataset/*-drawn
