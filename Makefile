# make demo    a digit classifier trains on an emulated board, and in NumPy; every weight is compared
# make test    everything that continuous integration runs
# make test-all    the same, the long tables and the PyTorch oracle

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

TOOL_PACKAGES := gcc python3-venv gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
TEST_PACKAGES := clang g++

.PHONY: setup demo check test test-all clean

setup: build/setup.stamp

# $(1): Debian packages. Installs the missing ones as root; anyone else is told their names.
define need_packages
	@missing=; for package in $(1); do \
	    dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "please install (Debian's names):$$missing"; fi
endef

build:
	mkdir -p $@

build/tools.stamp: | build
	$(call need_packages,$(TOOL_PACKAGES))
	touch $@

build/test_tools.stamp: | build
	$(call need_packages,$(TEST_PACKAGES))
	touch $@

$(BIN)/python: | build/tools.stamp
	$(PYTHON) -m venv $(VENV)

build/setup.stamp: pyproject.toml build/tools.stamp | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,demo]"
	touch $@

build/oracles.stamp: build/setup.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[oracles]"
	touch $@

demo: setup
	$(BIN)/teeny-embed demo

check: setup
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: check build/test_tools.stamp
	$(BIN)/python -m pytest tests firmware_tests -q -n auto --dist worksteal

test-all: check build/test_tools.stamp build/oracles.stamp
	$(BIN)/python -m pytest tests firmware_tests -q -n auto --dist worksteal -m "full or not full"

clean:
	rm -rf build dist
