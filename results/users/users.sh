#!/usr/bin/env bash
# Times kernels of users, a JSON object a row: users.sh TESSERA OUT.jsonl [OPTION...]. A row without a verdict says why, and the others follow.
set -uo pipefail
tessera=$1 out=$2
shift 2
here=$(dirname "$0")
plans=$here/../plans/kernels.py
: >"$out"
options=("$@")
try() { "$tessera" bench "$@" --device cuda --json "${options[@]}" >>"$out"; }
try "$here/kernels.py::bias_gelu" "x=randn:bf16[16384,8192]" "bias=randn:bf16[8192]" "y=empty:bf16[16384,8192]" N=8192 --grid 16384
try "$here/kernels.py::product_while" "A=rand:i8[4096,4096]" "B=rand:i8[4096,4096]" "C=empty:i32[4096,4096]" TM=128 TN=128 TK=128 --grid 32,32
try "$here/kernels.py::softmax_gather" "x=randn:f32[8192,8192]" "y=empty:f32[8192,8192]" N=8192 --grid 8192
try "$here/kernels.py::layer_norm_passes" "x=randn:bf16[16384,8192]" "w=randn:bf16[8192]" "b=randn:bf16[8192]" "y=empty:bf16[16384,8192]" eps=1e-5 TILE=2048 --grid 16384
try "$here/kernels.py::histogram" "values=const(7):i32[16777216]" "bins=zeros:i32[256]" TILE=1024 --grid 16384
a() { echo "randn:$1[$2,$3];seed=$4"; }
try "$plans::product" "A=$(a bf16 4096 4096 1)" "B=$(a bf16 4096 4096 2)" "C=empty:f32[4096,4096]" TM=128 TN=256 TK=64 --grid 32,16
try "$plans::product_nt" "A=$(a f8e4m3 4096 4096 1)" "B=$(a f8e4m3 4096 4096 2)" "C=empty:bf16[4096,4096]" TM=128 TN=128 TK=128 --grid 32,32
try "$plans::gelu" "A=$(a bf16 4096 2048 1)" "B=$(a bf16 2048 4096 2)" "bias=randn:bf16[4096]" "C=empty:bf16[4096,4096]" TM=128 TN=128 TK=64 --grid 32,32
try "$plans::dequantised" "A=$(a bf16 2048 4096 1)" "W=rand:i8[4096,4096]" "scale=randn:bf16[4096]" "C=empty:bf16[2048,4096]" TM=128 TN=128 TK=64 --grid 16,32
try "$plans::attention" "Q=randn:bf16[32,4096,128]" "K=randn:bf16[32,4096,128]" "V=randn:bf16[32,4096,128]" "O=empty:bf16[32,4096,128]" scale=0.1275 TM=128 TN=128 D=128 --grid 32,32
