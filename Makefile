# SPDX-License-Identifier: Apache-2.0
# make demo: from nothing to an exported, proven and timed policy.  make test: all tests.
PYTHON ?= python3
VENV ?= .venv
ARTIFACT ?= outputs/arm_reach

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(shell find runtime CMakeLists.txt -type f 2>/dev/null)

.PHONY: demo test check format native-test clean

demo: $(STAMP)
	$(BIN)/python scripts/export_policy.py out_dir=$(ARTIFACT)
	$(BIN)/python scripts/rollout_parity.py artifact=$(ARTIFACT)
	$(BIN)/python scripts/bench_policy.py artifact=$(ARTIFACT)
	@echo "Open $(ARTIFACT)/parity.html to see how the exported policy acts."

test: $(STAMP) native-test
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	find runtime -name '*.h' -o -name '*.cc' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find runtime -name '*.h' -o -name '*.cc' | xargs $(BIN)/clang-format -i

# Unit tests of the C++ core, under the address and undefined-behaviour sanitizers.
native-test: $(STAMP)
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	    -DLEAPP_POLICY_BUILD_TESTS=ON -DLEAPP_POLICY_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure

# torch first and pinned: of this version pip takes a CPU build where one is offered.
$(STAMP): pyproject.toml requirements/cpu.txt $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements/cpu.txt
	$(BIN)/python -m pip install --quiet -r requirements/cpu.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build outputs
