# make demo | test | lint | bench | conformance; the first use creates .venv and installs.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench conformance

demo: $(VENV)/.installed-demo
	$(PY) tutorials/demo.py

test: $(VENV)/.installed-test
	$(PY) -m pytest -n auto tests

lint: $(VENV)/.installed-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(VENV)/.installed-bench
	$(PY) -m benchmarks

conformance: $(VENV)/.installed-test
	$(PY) -m pytest -n auto tests/conformance

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[demo]'
	touch $@

# torch first and alone: its pinned release decides what everything after it may choose.
$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/.installed-test
	$(PIP) -e '.[bench]'
	touch $@
