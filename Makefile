# Set-up, tests and demo. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
CONSTRAINTS := constraints.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_OPTIONS := --disable-pip-version-check --no-input -qq
PIP := $(BIN)/python -m pip $(PIP_OPTIONS)
# vLLM wants other versions of what the tests use, so it has an environment of its own.
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip $(PIP_OPTIONS)
# What agents are written with brings hundreds of packages, of which the tests need none.
AGENTS_VENV := .venv-agents
AGENTS_STAMP := $(AGENTS_VENV)/.installed
AGENTS_PIP := $(AGENTS_VENV)/bin/python -m pip $(PIP_OPTIONS)
# So do the trainers of others; verl wants another transformers, too.
TRAINERS_VENV := .venv-trainers
TRAINERS_STAMP := $(TRAINERS_VENV)/.installed
TRAINERS_PIP := $(TRAINERS_VENV)/bin/python -m pip $(PIP_OPTIONS) install --constraint constraints-trainers.txt

# The chat model of 135M parameters that tests, benchmarks and a demo use.
PRETRAINED := $(VENV)/pretrained/smollm2-135m-instruct

# Threads beyond the cores spin against each other; two is what the time limits of the tests are meant for.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false
# Without bytecode each of a few hundred processes would compile the package, and each worker rewrite the tests, again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help docs venv test suite test-lowest test-highest test-trl test-vllm test-agents test-trainers test-pretrained test-wheel browser soak mutants lint format demo demo-real playthroughs spaces benchmarks benchmarks-pretrained clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf 'make %-13s %s\n' "$$name" "$$text"; done

venv: $(STAMP) ## make the virtual environment .venv, with everything the tests need

# The stamp is written last, so an installation that was cut short is taken up again. After that, nothing here
# needs a network until pyproject.toml or the constraints change.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or later is needed, got '$(PYTHON)' ($$($(PYTHON) --version 2>&1)); name another one, as in 'make PYTHON=python3.12 venv'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
		echo "'$(PYTHON)' must be able to make virtual environments, but has no 'venv' or 'ensurepip' module; install it (the package python3-venv on Debian and Ubuntu)." >&2; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(if $(CONSTRAINTS),$(PIP) install "$$(grep '^torch==' $(CONSTRAINTS))" --constraint $(CONSTRAINTS))
	@$(PIP) install --editable ".[dev]" $(CONSTRAINTS:%=--constraint %)
	@touch $@

# The type checker takes a minute of one core, so the suite runs beside it.
test: browser ## run the linter, the type checker and the whole test suite
	@$(MAKE) --jobs 2 lint suite

# One thread for each process that runs tests: more would spin against each other.
suite: browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal --junitxml $(VENV)/results.xml $(PYTEST_OPTIONS)
	@$(if $(ROW),$(BIN)/python tests/compatibility.py $(VENV)/results.xml "$(ROW)")

# The warnings of older versions are nobody's here to fix.
test-lowest: ## run the suite with the lowest versions that pyproject.toml admits, in an environment of its own
	@$(MAKE) suite VENV=.venv-lowest-$(notdir $(PYTHON)) CONSTRAINTS=constraints-lowest.txt PYTEST_OPTIONS="-W default" ROW="make test-lowest"

test-highest: ## run the suite with the highest versions that pyproject.toml admits, in an environment of its own
	@$(MAKE) suite VENV=.venv-highest-$(notdir $(PYTHON)) CONSTRAINTS= ROW="make test-highest"

# Without Triton TRL 1.15 computes no log-probability, and on a CPU with an interpreted one alone.
test-trl: ## test the trainers but the asynchronous one with TRL 1.15, the version before, in .venv-trl
	@$(MAKE) venv VENV=.venv-trl
	@.venv-trl/bin/python -m pip install $(PIP_OPTIONS) --no-deps 'trl==1.15.*' triton
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 .venv-trl/bin/python -m pytest --numprocesses auto --dist worksteal --junitxml .venv-trl/results.xml tests/test_private_names.py tests/trainers --ignore tests/trainers/asynchronous
	@.venv-trl/bin/python tests/compatibility.py .venv-trl/results.xml "make test-trl"

test-wheel: $(STAMP) ## build the wheel, install it into the empty .venv-wheel, and run the README's commands with them
	$(BIN)/python tests/wheel.py

browser: $(STAMP) ## find or install a browser for the tests of pages
	@$(BIN)/python tests/browser.py

test-vllm: $(VLLM_STAMP) $(PRETRAINED) ## test training through vLLM, in .venv-vllm with the build of vLLM for CPUs (a quarter of an hour)
	$(VLLM_VENV)/bin/python -m pytest -m vllm --junitxml $(VLLM_VENV)/results.xml tests/vllm
	@$(VLLM_VENV)/bin/python tests/compatibility.py $(VLLM_VENV)/results.xml "make test-vllm"

# What other tests need is left out, since vLLM and gradio, say, do not fit together. What is removed again is built for
# GPUs, does not load beside torch for CPUs, and serves images and sound.
$(VLLM_STAMP): pyproject.toml constraints-vllm.txt tests/vllm/version/pyproject.toml
	@echo "Setting up $(VLLM_VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_PIP) install "$$(grep '^torch==' constraints-vllm.txt)" --constraint constraints-vllm.txt
	@$(VLLM_PIP) install --editable ".[hub,leaderboard,statistics]" ./tests/vllm/version beartype hypothesis pytest --constraint constraints-vllm.txt
	@$(VLLM_PIP) uninstall --yes torchvision torchaudio torchcodec
	@touch $@

test-agents: $(AGENTS_STAMP) ## test agents on the frameworks of others, unmodified, in .venv-agents
	OMP_NUM_THREADS=1 $(AGENTS_VENV)/bin/python -m pytest -m frameworks --junitxml $(AGENTS_VENV)/results.xml tests/frameworks
	@$(AGENTS_VENV)/bin/python tests/compatibility.py $(AGENTS_VENV)/results.xml "make test-agents"

# Packages of npm lie in the environment too; without npm, the program that needs them is left out.
$(AGENTS_STAMP): pyproject.toml constraints-agents.txt tests/frameworks/requirements.txt tests/frameworks/package-lock.json
	@echo "Setting up $(AGENTS_VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(AGENTS_VENV)
	@$(AGENTS_PIP) install "$$(grep '^torch==' constraints-agents.txt)" --constraint constraints-agents.txt
	@$(AGENTS_PIP) install --editable ".[agents,hub,leaderboard]" --requirement tests/frameworks/requirements.txt --constraint constraints-agents.txt
	@cp tests/frameworks/package.json tests/frameworks/package-lock.json $(AGENTS_VENV)
	@if command -v npm > /dev/null; then npm ci --prefix $(AGENTS_VENV) --ignore-scripts --no-audit --no-fund --silent; fi
	@touch $@

test-trainers: $(TRAINERS_STAMP) ## test credit in the trainers of others, unmodified, in .venv-trainers
	OMP_NUM_THREADS=1 $(TRAINERS_VENV)/bin/python -m pytest -W default -m trainers --junitxml $(TRAINERS_VENV)/results.xml tests/methods/test_other_trainers.py
	@$(TRAINERS_VENV)/bin/python tests/compatibility.py $(TRAINERS_VENV)/results.xml "make test-trainers"

# Without its dependencies verl runs beside the transformers of TRL; what its trainer imports is in the list.
$(TRAINERS_STAMP): pyproject.toml constraints-trainers.txt tests/methods/other_trainers.txt
	@echo "Setting up $(TRAINERS_VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(TRAINERS_VENV)
	@$(TRAINERS_PIP) "$$(grep '^torch==' constraints-trainers.txt)"
	@$(TRAINERS_PIP) --editable ".[hub,leaderboard]" --requirement tests/methods/other_trainers.txt
	@$(TRAINERS_PIP) --no-deps verl
	@touch $@

test-pretrained: $(STAMP) ## test all that a user does with a pretrained chat model of 135M parameters, which is fetched once
	$(BIN)/python -m pytest -m pretrained --junitxml $(VENV)/pretrained.xml tests/pretrained
	@$(BIN)/python tests/compatibility.py $(VENV)/pretrained.xml "make test-pretrained"

soak: $(STAMP) ## test a Hub that fails with twenty seeds in place of two, the sandbox with all solutions, and long trainings (half an hour)
	OMP_NUM_THREADS=1 LOCAL_HUB_FAULT_SEEDS=20 $(BIN)/python -m pytest --numprocesses auto tests/hub tests/leaderboard packages/local-hub
	OMP_NUM_THREADS=1 CODE_SANDBOX_EVERY=1 $(BIN)/python -m pytest packages/code-sandbox/tests/test_unit_tests.py -k reference
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m soak tests/trainers/test_long_run.py

mutants: $(STAMP) ## change the source on purpose, and check that a test notices each change (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP) ## fix what the linter can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(STAMP) ## train a small policy and compare it, on a CPU, within minutes
	$(BIN)/hf-credit demo --output runs/demo

demo-real: $(PRETRAINED) ## train a pretrained chat model of 135M parameters on a program, and compare it, on two cores with bfloat16
	cd examples/sql_agent && $(abspath $(BIN))/python demo_real.py $(abspath $(PRETRAINED))

$(PRETRAINED): | $(STAMP)
	$(BIN)/python tests/pretrained/convert.py $@

playthroughs: $(STAMP) ## write the committed playthrough of every environment anew
	@for name in $$($(BIN)/python -c 'from hf_credit.environments import ENVIRONMENTS; print(*ENVIRONMENTS)'); do \
		$(BIN)/python tests/processes/playthrough.py $$name > tests/environments/playthroughs/$$name.txt || exit 1; \
	done

spaces: $(STAMP) ## write the Spaces of environments and leaderboard anew, as far as they follow from the code
	@for name in $$($(BIN)/python -c 'from hf_credit.environments import ENVIRONMENTS; print(*ENVIRONMENTS)'); do \
		$(BIN)/python -m hf_credit.hub.spaces $$name hub_assets/environments/$$name || exit 1; \
	done
	@$(BIN)/python -m hf_credit_leaderboard.space hub_assets/leaderboard

docs: $(STAMP) ## build the documentation into site/<version>; a broken link or a missing docstring fails
	@$(PIP) install --quiet --editable ".[docs]" --constraint constraints.txt
	$(BIN)/python -m sphinx -W --keep-going --quiet -c docs . site/$$($(BIN)/python -c 'import hf_credit; print(hf_credit.__version__)')

benchmarks: $(STAMP) ## measure speed and memory beside other libraries (half an hour)
	@$(PIP) install --editable ".[benchmarks]" --constraint constraints.txt
	@for name in rollouts diagnostics answers slow_worlds remote_worlds sandbox step_time processes oracles hub trust_region memory multi_turn_ppo asynchronous tree_update; do \
		$(BIN)/python benchmarks/$$name.py --output benchmarks/results || exit 1; \
	done

benchmarks-pretrained: $(PRETRAINED) ## measure rollouts, memory and seconds of a step with a pretrained chat model beside TRL's (a quarter of an hour)
	@$(PIP) install --editable ".[benchmarks]" --constraint constraints.txt
	$(BIN)/python benchmarks/rollouts.py --model $(PRETRAINED) --blanks 3 --games 2 --plays 4 --epochs 12 --repeats 3 --output benchmarks/results/pretrained
	$(BIN)/python benchmarks/memory.py --model $(PRETRAINED) --episodes 4 --turns 4 --rows-at-once 4 --steps 2 --repeats 3 --output benchmarks/results/pretrained

clean: ## remove the virtual environment, caches and builds (not runs/)
	rm -rf $(VENV) $(VENV)-* build dist src/*.egg-info packages/*/build packages/*/dist packages/*/src/*.egg-info tests/vllm/version/build tests/vllm/version/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests packages -name __pycache__ -type d -prune -exec rm -rf {} +
