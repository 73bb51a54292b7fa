# Two commands do all the set-up: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0

.PHONY: demo test lint lock clean

demo: .venv/ready
	$(BIN)/shoal compare fedavg fedprox:mu=0.1 --spec examples/demo.toml --seeds 0 --out runs/demo
	@echo "Open runs/demo/report.html in a browser."

test: lint
	$(BIN)/python -m pytest -n 2

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch goes first and is pinned, so that nothing else decides which build of it comes
.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH) --constraint requirements.lock
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint requirements.lock
	$(BIN)/python -c 'from shoal.kernels import warm_up; warm_up()'
	touch $@

# after a change of the dependencies: make clean, install without constraints, then this
lock: .venv/ready
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf .venv
