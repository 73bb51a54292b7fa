# Two commands do all the set-up: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0

.PHONY: demo test chaos fuzz lint wheel lists lock clean

demo: .venv/ready
	$(BIN)/shoal compare fedavg fedprox:mu=0.1 --spec examples/demo.toml --seeds 0 --out runs/demo
	@echo "Open runs/demo/report.html in a browser."

test: lint wheel
	$(BIN)/python -m pytest -n 2

# runs that are killed at random and at every operation on the disk, in a quarter of an hour
chaos: .venv/ready
	$(BIN)/python tests/chaos/run.py

# mutated inputs for every reader of what comes from outside, TIME seconds each
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

# after a change of the dependencies: make clean, install without constraints, then this
lock: .venv/ready
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf .venv dist
