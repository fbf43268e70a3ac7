#!/usr/bin/env bash
# Tries the plans of some kernels, a JSON object a plan: plans.sh TESSERA OUT.jsonl [OPTION...]. With `--predict h100` no device is needed, and
# DRAW=empty saves the time to draw numbers.
set -euo pipefail
tessera=$1 out=$2
shift 2
kernels=$(dirname "$0")/kernels.py
: >"$out"
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
try() { "$tessera" tune "$kernels::$1" "${@:2}" --json --most 1000 --lock "$scratch/tessera.lock" "${options[@]}" >>"$out"; }
options=("$@")
draw=${DRAW:-randn}
a() { echo "$draw:$1[$2,$3]$([ "$draw" = empty ] || echo ";seed=$4")"; }
try product "A=$(a bf16 4096 4096 1)" "B=$(a bf16 4096 4096 2)" "C=empty:f32[4096,4096]" TM=128 TN=256 TK=64 --grid 32,16
try product "A=$(a bf16 2048 1024 1)" "B=$(a bf16 1024 8192 2)" "C=empty:bf16[2048,8192]" TM=128 TN=128 TK=64 --grid 16,64
try product "A=$(a f16 512 8192 1)" "B=$(a f16 8192 1024 2)" "C=empty:f32[512,1024]" TM=128 TN=128 TK=64 --grid 4,8
try product_nt "A=$(a f8e4m3 4096 4096 1)" "B=$(a f8e4m3 4096 4096 2)" "C=empty:bf16[4096,4096]" TM=128 TN=128 TK=128 --grid 32,32
try gelu "A=$(a bf16 4096 2048 1)" "B=$(a bf16 2048 4096 2)" "bias=$draw:bf16[4096]" "C=empty:bf16[4096,4096]" TM=128 TN=128 TK=64 --grid 32,32
try dequantised "A=$(a bf16 2048 4096 1)" "W=$draw:i8[4096,4096]" "scale=$draw:bf16[4096]" "C=empty:bf16[2048,4096]" TM=128 TN=128 TK=64 --grid 16,32
try attention "Q=$draw:bf16[32,4096,128]" "K=$draw:bf16[32,4096,128]" "V=$draw:bf16[32,4096,128]" "O=empty:bf16[32,4096,128]" scale=0.1275 TM=128 TN=128 D=128 --grid 32,32
