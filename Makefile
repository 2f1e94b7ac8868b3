# make demo | test | lint | bench | conformance | conformance-torch | models-torch | fuzz | cuda-zoo; the
# first use creates .venv and installs.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check

# Packages that ship trained ONNX files. Only the files are read, so what the packages need to run
# (OpenCV, torchaudio, ...) stays out.
TRAINED := 'rapidocr-onnxruntime>=1.4,<2' 'magika>=1.0,<2' 'silero-vad>=6,<7' 'ddddocr>=1.6,<2'

.PHONY: demo test lint bench conformance conformance-torch models-torch fuzz cuda-zoo

demo: $(VENV)/.installed-demo
	$(PY) tutorials/demo.py

test: $(VENV)/.installed-test
	$(PY) -m pytest -n auto --dist worksteal tests

lint: $(VENV)/.installed-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: $(VENV)/.installed-bench
	$(PY) -m benchmarks

conformance: $(VENV)/.installed-test
	$(PY) -m tests.conformance

conformance-torch: $(VENV)/.installed-test
	$(PY) -m tests.conformance.torch_operators

models-torch: $(VENV)/.installed-test
	$(PY) -m tests.conformance.torch_models

fuzz: $(VENV)/.installed-test
	$(PY) -m tests.fuzz
	$(PY) -m tests.fuzz --cases
	$(PY) -m tests.fuzz.pack_buffers
	$(PY) -m tests.fuzz.graphs

cuda-zoo: $(VENV)/.installed-bench
	$(PY) -m tests.cuda.zoo

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps $(TRAINED)
	touch $@

# torch first and alone: its pinned release decides what everything after it may choose.
$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[test]'
	$(PIP) --no-deps $(TRAINED)
	touch $@

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/.installed-test
	$(PIP) -e '.[bench]'
	touch $@
