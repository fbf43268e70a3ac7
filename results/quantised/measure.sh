#!/usr/bin/env bash
# Times products of quantised factors beside the bf16 product of the same shape, a JSON object a row: measure.sh TESSERA OUT.jsonl [OPTION...].
# A row without a verdict says why, and the others follow. Rows of one shape stand side by side; quote ratios of rows of one run.
set -uo pipefail
tessera=$1 out=$2
shift 2
here=$(dirname "$0")
kernels=$here/../../crates/tessera-ops/kernels
: >"$out"
options=("$@")
try() { "$tessera" bench "$@" --device cuda --json "${options[@]}" >>"$out"; }
# The library's own choice of tiles and sharing.
for layer in 8192,8192 28672,8192; do
    n=${layer%,*} k=${layer#*,}
    for m in 1 16 64 256 4096; do
        try gemm --precision 'bf16->bf16' --sizes "batch=1,m=$m,n=$n,k=$k,variant=nt"
        for variant in symmetric zeros; do
            try linear_w4 --precision bf16 --sizes "m=$m,n=$n,k=$k,group=128,variant=$variant"
        done
        try linear_w4 --precision bf16 --sizes "m=$m,n=$n,k=$k,group=64,variant=symmetric"
        try linear_w4 --precision fp16 --sizes "m=$m,n=$n,k=$k,group=128,variant=symmetric"
    done
done
for shape in 64,8192,8192 128,8192,8192 4096,4096,4096 8192,8192,8192 4096,7168,2048 4096,4096,7168; do
    IFS=, read -r m n k <<<"$shape"
    try gemm --precision 'bf16->bf16' --sizes "batch=1,m=$m,n=$n,k=$k,variant=nt"
    try gemm --precision 'fp8_e4m3->bf16' --sizes "batch=1,m=$m,n=$n,k=$k,variant=nt"
    for variant in blocks rows tensor; do
        try gemm_scaled --precision 'fp8_e4m3->bf16' --sizes "m=$m,n=$n,k=$k,variant=$variant"
    done
done
# Other tiles of weights of 4 bits: rows of weights, contraction, and what blocks share.
weights() { # M N K TN TK SHARING
    local m=$1 n=$2 k=$3 tn=$4 tk=$5 tm=8
    while ((tm < m && tm < 128)); do tm=$((2 * tm)); done
    try "$kernels/linear_w4.py::symmetric" "x=randn:bf16[$m,$k]" "W=rand:i32[$((n / 8)),$k]" "S=randn:bf16[$((k / 128)),$n]" "y=empty:bf16[$m,$n]" \
        "K=$k" GROUP=128 "TM=$tm" "TN=$tn" "TK=$tk" --grid "$(((m + tm - 1) / tm)),$((n / tn))" --config "sharing=$6"
}
for layer in '8192 8192' '28672 8192'; do
    for m in 1 16 64; do
        for tile in '64 256 0' '64 256 2' '64 128 0' '64 128 2' '128 128 0' '128 128 2' '128 256 2'; do
            weights "$m" $layer $tile
        done
    done
    for tile in '128 128 0' '128 128 1' '128 128 2'; do
        weights 4096 $layer $tile
    done
done
