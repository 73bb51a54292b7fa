# Two commands do all the set-up: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
FEDERATION := .venv-federation
TORCH := torch==2.13.0

.PHONY: demo test test-federation federation soak chaos fuzz lint wheel lists lock clean

demo: .venv/ready
	$(BIN)/shoal demo --out runs/demo
	@echo "Open runs/demo/report.html in a browser."

test: lint wheel .venv-federation/ready
	$(BIN)/python -m pytest -n 2

# the tests that start real federations and clusters; they take half an hour
test-federation: .venv-federation/ready
	$(BIN)/python -m pytest -m federation tests/federation

# the four hospitals of heart_disease, three methods, on this machine
federation: .venv-federation/ready
	$(FEDERATION)/bin/python examples/federation/hospitals.py --out runs/federation

# 200 rounds in which sites and the server are killed
soak: .venv-federation/ready
	$(FEDERATION)/bin/python examples/federation/soak.py --out runs/soak

# runs that are killed at random and at every operation on the disk, in a quarter of an hour
chaos: .venv/ready
	$(BIN)/python tests/chaos/run.py

# mutated inputs for every reader of what comes from outside, TIME seconds of processor time each
TIME ?= 600
fuzz: .venv/ready
	$(BIN)/python tests/fuzz/run.py --time $(TIME)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# build the package, then install and use it far from this folder
wheel: .venv/ready
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python .ci/try_wheel.py dist/*.whl

# what `shoal methods` and its like print; after a change of a catalogue
lists: .venv/ready
	$(BIN)/python -c 'from shoal.cli.lists import write_lists; write_lists()'

# torch goes first and is pinned, so that nothing else decides which build of it comes; so does what builds Shoal
.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH) hatchling --constraint requirements.lock
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev]' --constraint requirements.lock
	$(BIN)/python -m compileall -q src
	$(BIN)/python -c 'from shoal.kernels import warm_up; warm_up()'
	touch $@

# Flower wants older typer, rich and packaging than the development tools do: an environment of its own for it and
# Ray, which shares everything else with the first one
.venv-federation/ready: .venv/ready
	$(PYTHON) -m venv $(FEDERATION)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(FEDERATION)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	grep -v -i -E '^(typer|rich|packaging)==' requirements.lock > $(FEDERATION)/constraints.txt
	$(FEDERATION)/bin/python -m pip install --quiet --no-build-isolation --editable '.[flower,ray]' \
		--constraint $(FEDERATION)/constraints.txt
	touch $@

# after a change of the dependencies: make clean, install without constraints, then this
lock: .venv/ready
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf .venv $(FEDERATION) dist
