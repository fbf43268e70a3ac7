#!/bin/bash
# Checks and times the kernels over NVLink on the GPUs of this machine: nvlink.sh FOLDER [RANKS]
# FOLDER has the program `nvlink` (cargo build --release -p tessera-runtime --example nvlink), and perhaps `tessera`, whose ranks are
# processes that open each other's memory.
# Every step has a time limit. What is timed was checked first; exits with the number of steps that failed.
set -u
here=$(cd "$1" && pwd)
n=${2:-2}
failed=0

# step NAME LIMIT COMMAND...
step() {
    local name=$1 limit=$2
    shift 2
    echo "== $name"
    timeout -k 2 "$limit" "$@" 2>&1
    local rc=$?
    if [[ $rc -ne 0 ]]; then
        failed=$((failed + 1))
        echo "== $name: FAILED ($rc)"
    fi
    return $rc
}

step "emulated devices" 60 "$here/nvlink" --device emu --ranks 2 --check-only --seconds 55
step "right on $n GPUs" 120 "$here/nvlink" --ranks "$n" --check-only --seconds 110 &&
    step "times on $n GPUs" 200 "$here/nvlink" --ranks "$n" --seconds 190

# Ranks as processes, which torchrun's variables number.
processes() {
    local rank port=$((20000 + RANDOM % 20000)) pids=() rc=0
    for ((rank = n - 1; rank >= 0; rank--)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 2 150 "$here/tessera" bench all_reduce --device cuda --over nvlink --sizes quick --precision bf16 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done
    return $rc
}
if [[ -x $here/tessera ]]; then
    echo "== ranks as processes"
    processes || failed=$((failed + 1))
fi
exit "$failed"
