#!/bin/bash
# Checks and times the kernels over NVLink on the GPUs of this machine: nvlink.sh FOLDER [RANKS]
# FOLDER has the program `nvlink` (cargo build --release -p tessera-runtime --example nvlink).
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
exit "$failed"
