# Two commands do all the set-up: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0

.PHONY: demo test lint wheel lists lock clean

demo: .venv/ready
	$(BIN)/shoal demo --out runs/demo
	@echo "Open runs/demo/report.html in a browser."

test: lint wheel
	$(BIN)/python -m pytest -n 2

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
