# `make demo` and `make test` do all the set-up on a fresh machine, once, and then their job.

VENV ?= .venv
DEMO := $(VENV)/bin/tidegate bench --prompts examples/prompts.txt

export VENV

.PHONY: demo test lint setup clean

demo: setup
	$(DEMO)

test: setup
	scripts/check

lint: setup
	scripts/lint

setup: $(VENV)/.installed

# The stamp is written last, so an interrupted set-up starts again, from a clean environment.
$(VENV)/.installed: pyproject.toml scripts/install $(wildcard requirements/*.txt)
	@scripts/install
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
