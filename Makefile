# `make` alone lists the targets. The tools need nothing but Python's standard library; all else goes into .venv.
PYTHON ?= python3
ARGS ?=
.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-all test-tf215 lint analyse costs bench docs fuzz soak clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  make test ARGS="-k name"    hands ARGS to pytest;  make PYTHON=python3.12 setup    takes another Python'

setup:  ## make .venv, build and cache Horovod, build the engine (skips what is done)
	@$(PYTHON) tools/setup.py

demo:  ## train NT3 on 2 Horovod ranks, kill it, resume it, open its checkpoint with stock Keras
	@$(PYTHON) tools/setup.py --without-tests
	@$(PYTHON) tools/demo.py

check: setup  ## formats, style, types, and the tests that need no TensorFlow (2 minutes)
	@$(PYTHON) tools/check.py $(ARGS)

test: setup  ## run the tests, with real Horovod ranks and real kills (10 minutes on 2 cores)
	@$(PYTHON) tools/test.py --tier test $(ARGS)

test-all: setup  ## run everything that can be tested (hours); ARGS="--part 3/10": a tenth of what make test leaves out
	@$(PYTHON) tools/test_all.py $(ARGS)

test-tf215: setup  ## run the tests that TensorFlow 2.15 with its own Keras 2.15 concerns, in .venv-tf215
	@$(PYTHON) tools/tf215.py $(ARGS)

bench: setup  ## measure everything in docs/benchmarks.md, on an idle machine (half an hour)
	@$(PYTHON) tools/bench.py $(ARGS)

lint: setup  ## formats, style, types, and whether the tests keep to their time (seconds)
	@$(PYTHON) tools/lint.py

analyse: setup  ## the engine: static analysis, and its tests under sanitizers (10 minutes)
	@$(PYTHON) tools/analyse.py $(ARGS)

costs: setup  ## take over what the last runs of the tests measured into tests/costs.tsv, and check the sums
	@$(PYTHON) tools/costs.py --take

docs:  ## build the user guide and reference as a site, build/docs/index.html; links are checked
	@$(PYTHON) tools/docs.py

fuzz: setup  ## hostile bytes for every reader, a million for each (10 minutes); ARGS="--seconds 60" bounds the time
	@$(PYTHON) tools/fuzz.py $(ARGS)

soak: setup  ## kills, faults and sanitizers for hours, with a plot (ARGS="--hours 0.1 --rounds 50" for less)
	@$(PYTHON) tools/soak.py $(ARGS)

clean:  ## remove what was built, except .venv and the wheel cache
	rm -rf build dist *.egg-info runs .pytest_cache .mypy_cache .ruff_cache veloc_bindings/*.so
	find benchmarks deepfreeze veloc_bindings examples tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv and .venv-peers, .venv-docs, .venv-tf215 too
	rm -rf .venv .venv-peers .venv-docs .venv-tf215
