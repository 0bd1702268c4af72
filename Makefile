# `make` alone lists the targets. The tools need only Python's standard library; everything else is installed into .venv.
PYTHON ?= python3
ARGS ?=
.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-all test-tf215 lint analyse costs bench bench-paper goodput docs wheel test-pythons fuzz soak mutants clean distclean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  make test ARGS="-k name"    passes ARGS to pytest;  make PYTHON=python3.12 setup    uses another Python'

setup:  ## make .venv, build Horovod and the engine (skips what is done already)
	@$(PYTHON) tools/setup.py

demo:  ## train NT3 on 2 Horovod ranks, kill it, resume it, open its checkpoint with stock Keras
	@$(PYTHON) tools/demo.py --announce
	@$(PYTHON) tools/setup.py --without-tests
	@$(PYTHON) tools/demo.py

check: setup  ## check formats, style and types; run the tests that need no TensorFlow (2 minutes)
	@$(PYTHON) tools/check.py $(ARGS)

test: setup  ## run the tests, with real Horovod ranks and real kills (10 minutes on 2 cores)
	@$(PYTHON) tools/test.py --tier test $(ARGS)

test-all: setup  ## run everything that can be tested (hours); ARGS="--part 3/16": a share of it, without make test
	@$(PYTHON) tools/test_all.py $(ARGS)

test-tf215: setup  ## run the tests on TensorFlow 2.15 with its own Keras 2.15, in .venv-tf215
	@$(PYTHON) tools/tf215.py $(ARGS)

test-pythons: setup  ## run tests on each Python from 3.10 to 3.13 that is there, in .venv-python3.12 and the like
	@$(PYTHON) tools/pythons.py $(ARGS)

bench: setup  ## measure everything in docs/benchmarks.md, on an idle machine (an hour and a quarter)
	@$(PYTHON) tools/bench.py $(ARGS)

bench-paper: setup  ## measure the paper's experiment alone, in full length, on an idle machine (two hours)
	@$(PYTHON) tools/bench.py --paper $(ARGS)

goodput: setup  ## count useful steps of jobs that are killed again and again (two hours); ARGS="--trace FILE": by that trace
	@$(PYTHON) tools/bench.py --goodput $(ARGS)

lint: setup  ## check formats, style, types, and that the tests stay within their time (seconds)
	@$(PYTHON) tools/lint.py

analyse: setup  ## check the engine: static analysis, and its tests under sanitizers (10 minutes)
	@$(PYTHON) tools/analyse.py $(ARGS)

costs: setup  ## write the seconds that the last test runs measured into tests/costs.tsv, and check the sums
	@$(PYTHON) tools/costs.py --take

docs:  ## build the user guide and reference as a site, build/docs/index.html, and check its links
	@$(PYTHON) tools/docs.py

wheel:  ## build a wheel for any Linux with glibc 2.28 and any Python, in dist/
	@$(PYTHON) tools/wheel.py

fuzz: setup  ## feed a million hostile inputs to each reader of files (10 minutes); ARGS="--seconds 60": a minute for each
	@$(PYTHON) tools/fuzz.py $(ARGS)

soak: setup  ## test with kills, faults and sanitizers for hours, and plot it (ARGS="--hours 0.1 --rounds 50": shorter; ARGS="--input": only the input)
	@$(PYTHON) tools/soak.py $(ARGS)

mutants: setup  ## change modules that write files, a little at a time, and see that tests notice (half an hour); MODULE=engine/upkeep.cc: another
	@$(PYTHON) tools/mutants.py $(MODULE) $(ARGS)

clean:  ## remove everything that was built, except .venv and the wheel cache
	rm -rf build dist *.egg-info runs .pytest_cache .mypy_cache .ruff_cache veloc_bindings/*.so
	find benchmarks deepfreeze veloc_bindings examples tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove all virtual environments too
	rm -rf .venv .venv-peers .venv-docs .venv-tf215 .venv-wheel .venv-python3.*
