# SPDX-License-Identifier: Apache-2.0
# make demo: from nothing to an exported, proven and timed policy.  make demo-robot: on a robot.  make test: all tests.
PYTHON ?= python3
VENV ?= .venv
ARTIFACT ?= outputs/arm_reach

# Processes that run the tests; a file's tests stay together.
TEST_WORKERS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What the installed libraries are built from.
NATIVE := $(shell find runtime CMakeLists.txt -type f -not -path 'runtime/fuzz/*' -not -path 'runtime/test/*' -not -path 'runtime/example/*' 2>/dev/null)

FUZZ_CXX ?= $(or $(firstword $(shell command -v clang++ clang++-19 clang++-16 clang++-14)),$(CXX))
FUZZ_RUNS ?= 10000000
FUZZ_SECONDS ?= 3600
FUZZERS ?= bundle_fuzz deploy_json_fuzz elf_object_fuzz metadata_fuzz packet_fuzz segment_open_fuzz step_log_fuzz wrp_header_fuzz

.PHONY: demo demo-robot test check format native-test native-test-aarch64 fuzz clean

demo: $(STAMP)
	$(BIN)/python scripts/export_policy.py out_dir=$(ARTIFACT)
	$(BIN)/python scripts/rollout_parity.py artifact=$(ARTIFACT)
	$(BIN)/python scripts/bench_policy.py artifact=$(ARTIFACT)
	@echo "Open $(ARTIFACT)/parity.html to see how the exported policy acts."

# The same policy on a robot: packed for it, run by leapp-run without Python, against the arm in MuJoCo.
demo-robot: $(STAMP)
	test -f $(ARTIFACT)/arm_reach.yaml || $(BIN)/python scripts/export_policy.py out_dir=$(ARTIFACT)
	$(BIN)/leapp-policy pack $(ARTIFACT) --robot tasks/arm_reach/robot.yaml --out $(ARTIFACT)_robot
	$(BIN)/python scripts/demo_robot.py $(ARTIFACT)_robot

test: $(STAMP) native-test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile

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
	    -DLEAPP_POLICY_BUILD_TESTS=ON -DLEAPP_POLICY_BUILD_FUZZERS=ON \
	    -DLEAPP_POLICY_BUILD_EXAMPLES=ON -DLEAPP_POLICY_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure

# The same tests for 64-bit Arm, cross-compiled and run by qemu (apt install g++-aarch64-linux-gnu qemu-user-static).
native-test-aarch64: $(STAMP)
	@if ! command -v aarch64-linux-gnu-g++ >/dev/null; then \
	    echo "native-test-aarch64 is skipped: there is no aarch64-linux-gnu-g++; install g++-aarch64-linux-gnu."; \
	elif ! command -v qemu-aarch64-static >/dev/null && ! command -v qemu-aarch64 >/dev/null; then \
	    echo "native-test-aarch64 is skipped: there is no qemu-aarch64; install qemu-user-static."; \
	else set -ex; \
	    $(BIN)/cmake -S . -B build/aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	        -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	        -DCMAKE_TOOLCHAIN_FILE=$(abspath runtime/cmake/aarch64-linux-gnu.cmake) \
	        -DLEAPP_POLICY_BUILD_TESTS=ON -DLEAPP_POLICY_BUILD_FUZZERS=ON \
	        -DLEAPP_POLICY_BUILD_EXAMPLES=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo; \
	    $(BIN)/cmake --build build/aarch64; \
	    $(BIN)/ctest --test-dir build/aarch64 --output-on-failure; \
	fi

# The long run of the fuzz targets: each takes FUZZ_RUNS inputs, or FUZZ_SECONDS where that is less.
# Logs are kept in build/fuzz/logs. With clang's libFuzzer they follow coverage (apt install clang libfuzzer-14-dev); g++ works too.
fuzz: $(STAMP)
	$(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DPython_EXECUTABLE=$(abspath $(BIN))/python -DCMAKE_CXX_COMPILER=$(FUZZ_CXX) \
	    -DLEAPP_POLICY_BUILD_FUZZERS=ON -DLEAPP_POLICY_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo
	$(BIN)/cmake --build build/fuzz
	mkdir -p build/fuzz/logs
	set -e; for target in $(FUZZERS); do \
	    echo "$$target: build/fuzz/logs/$$target.log"; \
	    build/fuzz/runtime/fuzz/$$target -runs=$(FUZZ_RUNS) -max_total_time=$(FUZZ_SECONDS) -max_len=8192 \
	        build/fuzz/runtime/fuzz/found/$$target runtime/fuzz/corpus/$$target \
	        > build/fuzz/logs/$$target.log 2>&1 || { tail -n 40 build/fuzz/logs/$$target.log; exit 1; }; \
	    tail -n 1 build/fuzz/logs/$$target.log; \
	done

# torch first and pinned: of this version pip takes a CPU build where one is offered.
$(STAMP): pyproject.toml requirements/cpu.txt $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements/cpu.txt
	$(BIN)/python -m pip install --quiet -r requirements/cpu.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build outputs
