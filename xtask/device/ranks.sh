#!/bin/bash
# Checks exchanges between the GPUs of this machine: ranks.sh FOLDER [RANKS]
# FOLDER has the programs `tessera` and `ranks` (cargo build --release -p tessera-cli; ... -p tessera-runtime --example ranks).
# Every step has a time limit. Prints one line a step; exits with the number of steps that failed.
set -u
here=$(cd "$1" && pwd)
n=${2:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TESSERA_RANKS_TIMEOUT=20 TESSERA_RANKS_PATIENCE=2
failed=0
port=$((20000 + RANDOM % 20000))

say() { printf '%-34s %-5s %s\n' "$1" "$2" "$3"; }

# judge NAME FILE PART...: the last line of FILE has every part.
judge() {
    local name=$1 file=$2 last part
    shift 2
    last=$(grep -v '^help:' "$file" | tail -n 1)
    for part in "$@"; do
        if [[ $last != *"$part"* ]]; then
            failed=$((failed + 1))
            say "$name" WRONG "$last"
            tail -n 6 "$file" | sed 's/^/    /'
            return
        fi
    done
    say "$name" ok "$last"
}

# one NAME LIMIT PART COMMAND...
one() {
    local name=$1 limit=$2 part=$3
    shift 3
    timeout -k 2 "$limit" "$@" > "$work/one" 2>&1 || true
    judge "$name" "$work/one" "$part"
}

# each LIMIT COMMAND...: as N processes; what rank R says is in $work/R. Whoever does not end in time is killed.
each() {
    local limit=$1 rank pids=()
    shift
    port=$((port + 3))
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 2 "$limit" "$@" > "$work/$rank" 2>&1 &
        pids+=($!)
    done
    wait "${pids[0]}"
    # Who has not ended soon after rank 0 is stopped on purpose, or hangs.
    local tries
    for ((rank = 1; rank < n; rank++)); do
        for ((tries = 0; tries < 80; tries++)); do
            kill -0 "${pids[$rank]}" 2> /dev/null || break
            sleep 0.1
        done
        if kill -0 "${pids[$rank]}" 2> /dev/null; then
            pkill -KILL -P "${pids[$rank]}"
            kill -KILL "${pids[$rank]}"
        fi
        wait "${pids[$rank]}" 2> /dev/null
    done
}

one 'NCCL' 20 'fine' "$here/ranks" nccl
one 'threads, 1,000 random calls' 120 'fine' "$here/ranks" threads "$n" 1 1000
# Without direct access to the other devices' tensors: where this alone is right, their memory is not open to each other.
one 'threads, by way of buffers' 120 'fine' env NCCL_P2P_DIRECT_DISABLE=1 "$here/ranks" threads "$n" 1 1000
one 'one thread, graphs' 60 'fine' "$here/ranks" one-thread "$n"
each 120 "$here/ranks" calls 2 1000 cuda; judge 'processes, 1,000 random calls' "$work/0" 'fine'
each 120 "$here/ranks" calls 3 60 cuda checked; judge 'processes, checked' "$work/0" 'fine'
each 60 "$here/ranks" calls 4 1000; judge 'processes over TCP' "$work/0" 'fine'
for fault in killed stopped; do
    each 60 "$here/ranks" fault $fault cuda; judge "rank 1 is $fault" "$work/0" 'rank 1 is lost' 'rank 0, call'
done
each 60 "$here/ranks" fault late cuda; judge 'rank 1 does not call' "$work/0" 'rank 1 did not take part' 'rank 0, call'
each 60 "$here/ranks" fault leaves cuda; judge 'rank 1 leaves' "$work/0" 'rank 1 stopped' 'rank 0, call'
for fault in sizes types order; do
    each 60 "$here/ranks" fault $fault cuda checked; judge "other $fault, checked" "$work/0" 'rank 1 calls' 'instead'
done
each 60 "$here/ranks" fault again cuda checked; judge 'made again after a failure' "$work/0" 'fine'

# A contraction-sharded product: as ranks on devices, and on the CPU.
cat > "$work/product.tir" <<'TIR'
graph @product(%A: operand<@Mx@Kxf32> {sharding = "[_, tp]"}, %B: operand<@Kx@Nxf32> {sharding = "[tp, _]"}, %C: operand<@Mx@Nxf32>) abi(A: operand<f32, ["M", "K"]>, B: operand<f32, ["K", "N"]>, C: operand<f32, ["M", "N"]>) mesh(tp=2) {
  %a = graph.load %A : tensor<@Mx@Kxf32>
  %b = graph.load %B : tensor<@Kx@Nxf32>
  %c = graph.contract %a, %b : tensor<@Mx@Nxf32>
  graph.store %c, %C
  return
}
TIR
args=('A=ones:f32[64,960]' 'B=ones:f32[960,128]' 'C=empty:f32[64,128]')
run=("$here/tessera" run "$work/product.tir::product" "${args[@]}")
one 'product, a thread a GPU' 60 '[960, 960' "${run[@]}" --ranks "$n" --device cuda
each 60 "${run[@]}" --device cuda --check-calls; judge 'product, a process a GPU' "$work/0" '[960, 960'
if command -v torchrun > /dev/null; then
    one 'torchrun, 100 random calls' 120 'fine' torchrun --no-python --nproc-per-node "$n" "$here/ranks" calls 5 100 cuda
else
    say 'torchrun' none 'is not on this machine'
fi
exit $failed
