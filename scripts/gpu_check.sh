#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build, test, run the scripts and benchmark on a CUDA machine in one go:
# scripts/gpu_check.sh OUT_FOLDER [build] [test] [scripts] [bench] [old_warp]
# old_warp needs OLD_WARP_SITES=FOLDER[:FOLDER...], each a site folder with another warp-lang (pip install --target).
# Needs python3 with torch (CUDA), warp-lang, onnxruntime-gpu, a C++17 compiler, cmake and ninja; installs nothing.
set -uo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
steps=${*:-build test scripts bench}
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python3}")
failed=0

run() {  # name, then the command; its output goes to a log
    local name=$1 start=$SECONDS
    shift
    echo "== $name: $*"
    if "$@" >"$out/$name.log" 2>&1; then
        echo "== $name: passed in $((SECONDS - start)) s"
    else
        echo "== $name: FAILED ($?) after $((SECONDS - start)) s"
        failed=1
    fi
    tail -n "${TAIL:-15}" "$out/$name.log"
}

# The source tree is used in place; tasks and conf are modules of the installed package.
site=$out/site
if [[ $steps == *build* ]]; then
    mkdir -p "$site/leapp_policy/_native"
    cp -r leapp_policy/. "$site/leapp_policy/"
    cp -r conf "$site/leapp_policy/conf" && cp -r tasks "$site/leapp_policy/tasks"
    run build bash -c "cmake -S . -B '$out/build' -G Ninja -DPython_EXECUTABLE='$python' -DCMAKE_BUILD_TYPE=Release \
        -DLEAPP_POLICY_TORCH=ON && cmake --build '$out/build' && find '$out/build' '(' -name 'libleapp_policy_*.so' -o -type f -name leapp-run ')' -exec cp {} '$site/leapp_policy/_native/' ';'"
fi
export PYTHONPATH="$site:${PYTHONPATH:-}"
export LEAPP_POLICY_ONNX_LIBRARY="$site/leapp_policy/_native/libleapp_policy_onnx.so"
export LEAPP_POLICY_RUNTIME_LIBRARY="$site/leapp_policy/_native/libleapp_policy_runtime.so"
export LEAPP_POLICY_RUN_PROGRAM="$site/leapp_policy/_native/leapp-run"
export PYTHONDONTWRITEBYTECODE=1
LEAPP_POLICY_WARP_LIBRARY_DIR=$("$python" -c "import os, warp; print(os.path.join(os.path.dirname(warp.__file__), 'bin'))" | tail -1)
export LEAPP_POLICY_WARP_LIBRARY_DIR

# LEAPP builds its operators against ONNX Runtime's headers, which no wheel has; the tests and the benchmark use them.
if [[ -n ${ONNXRUNTIME_INCLUDE_DIR:-} && $steps == *@(test|bench)* ]]; then
    run peer_build "$python" benchmarks/peer.py build --out "$out/leapp"
    eval "$(grep '^export LEAPP_WARP_' "$out/peer_build.log")"
    peer=--peer
fi
if [[ $steps == *test* ]]; then
    run versions "$python" -c "import torch, warp, onnxruntime; print(torch.__version__, warp.config.version, onnxruntime.__version__, torch.cuda.get_device_name(0))"
    LEAPP_POLICY_TEST_DEVICE=cuda:0 run gpu_tests "$python" -P -m pytest -n ${WORKERS:-4} tests/gpu -m gpu --maxfail=40 -p no:cacheprovider -rfEs --tb=short
    run deploy_tests "$python" -P -m pytest tests/deploy -m gpu -p no:cacheprovider -rfEs --tb=short
    # The rows that a policy may use, on the GPU; one that reads bad memory takes its worker's context along.
    LEAPP_POLICY_TEST_DEVICE=cuda:0 run rows_on_cuda "$python" -P -m pytest -n "${WORKERS:-6}" tests/trace/test_rows.py \
        --deselect tests/trace/test_rows.py::test_artifact_in_a_fresh_process \
        --deselect tests/trace/test_rows.py::test_fresh_process_needs_neither_torch_nor_warp \
        --deselect tests/trace/test_rows.py::test_folder_is_used_by_nobody_else \
        --deselect tests/trace/test_rows.py::test_module_that_was_loaded_before -p no:cacheprovider --tb=short -rfE
    LEAPP_POLICY_TEST_DEVICE=cuda:0 run blocks_on_cuda "$python" -P -m pytest -n "${WORKERS:-6}" tests/blocks/test_block_export.py \
        -k acts_as_the_original -p no:cacheprovider --tb=short -rfE
fi
if [[ $steps == *scripts* ]]; then
    # The commands of the README; PARITY_ARGS='parity.episodes=10' makes the rollouts short.
    for backend in onnx pt2; do
        arm=arm_cuda
        [[ $backend == onnx ]] || arm+=_$backend
        run "${arm}_export" "$python" scripts/export_policy.py device=cuda backend=$backend "out_dir=$out/$arm"
        # shellcheck disable=SC2086
        run "${arm}_parity" "$python" scripts/rollout_parity.py "artifact=$out/$arm" ${PARITY_ARGS:-}
        run "${arm}_bench" "$python" scripts/bench_policy.py "artifact=$out/$arm"
    done
fi
# An older Warp captures and replays on the GPU: the package itself is the same.
if [[ $steps == *old_warp* && -n ${OLD_WARP_SITES:-} ]]; then
    IFS=: read -ra old_sites <<<"$OLD_WARP_SITES"
    for old in "${old_sites[@]}"; do
        old=$(cd "$old" && pwd)
        export_old=(env "PYTHONPATH=$old:$PYTHONPATH" "LEAPP_POLICY_WARP_LIBRARY_DIR=$old/warp/bin")
        version=$("${export_old[@]}" "$python" -c "import warp; print(warp.config.version)" | tail -1)
        LEAPP_POLICY_TEST_DEVICE=cuda:0 run "old_warp_$version" "${export_old[@]}" "$python" -P -m pytest -n "${WORKERS:-4}" \
            tests/gpu/test_cuda_segments.py tests/trace/test_overwrite.py -k "not source and (test_overwrite or acts_as or \
            layouts or io_binding or on_its_own_memory or on_the_buffers or thousand or operator or no_build or ptx)" \
            -p no:cacheprovider -rfEs --tb=short
    done
fi
if [[ $steps == *bench* ]]; then
    # shellcheck disable=SC2086
    run exec_modes "$python" benchmarks/exec_modes.py --device cuda:0 --out "$out/exec_modes_cuda.json"
    run bench env PYTHONPATH="$site:$PYTHONPATH:$PWD" "$python" benchmarks/runtime.py --device cuda:0 ${peer:-} \
        ${BENCH_ARGS:---profile} --out "$out/runtime_cuda.json"
fi
exit $failed
