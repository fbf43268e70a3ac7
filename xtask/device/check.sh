#!/usr/bin/env bash
# What only a GPU can show, on a machine without Rust: `cargo xtask bundle` puts this script, the binary and all that it reads into
# one folder. Usage: check.sh OUT PART...; each part ends by itself and leaves its log in OUT.
#
#   edges     every operator at the edges of its tiles
#   threads   per-thread kernels against lock-step
#   language  every function of the language against NumPy
#   users     kernels in users' manner: right, then their times beside the work they do
#   memcheck  the quick suite under compute-sanitizer, where that is installed
#   chip      random programs and the library's PTX against the emulator
#   seed      the seed suite: what a time limit of SECONDS_LIMIT (200) reaches; goes on with OUT/seed.jsonl
#   timeline  a warp-specialised product's timeline
set -u
cd "$(dirname "$0")" || exit 1
OUT=$1
shift
mkdir -p "$OUT"
T=./tessera
start=$SECONDS

threads() {
    local failed=0 s=seeds n=1003003
    against() { "$T" check "$@" --device cuda --against cpu || { echo "FAILED: $*"; failed=1; }; }
    for op in axpy add mul; do
        against $s/vector_operations.py::vector_operations "x=randn:f32[$n]" "y=randn:f32[$n];seed=2" "result=zeros:f32[$n]" alpha=2.5 "operation=\"$op\"" --grid 7837
    done
    for op in dot norm reduce_sum reduce_max; do
        against $s/vector_operations.py::vector_operations "x=rand:f32[$n]" "y=rand:f32[$n];seed=2" "result=zeros:f32[1]" "operation=\"$op\"" --grid 7837
    done
    for p in f32 bf16 f16 f8e4m3; do
        against $s/vector_operations.py::vector_operations "x=randn:$p[4096]" "y=randn:$p[4096]" "result=zeros:$p[4096]" alpha=2.5 'operation="axpy"' --grid 32
        against $s/softmax_safe.py::softmax_safe "x=randn:$p[2,3,64,500]" "output=zeros:$p[2,3,64,500]" --grid 2,3,64
        against $s/softmax_safe.py::softmax_safe "x=randn:$p[2,3,64,500]" "output=zeros:$p[2,3,64,500]" causal_mask=True --grid 2,3,64 --block 256
    done
    against $s/layernorm_safe.py::layernorm_safe "x=randn:f32[4,64,1000]" "weight=randn:f32[1000]" "bias=randn:f32[1000];seed=3" "output=zeros:f32[4,64,1000]" --grid 4,64
    for o in copy scale add triad; do
        for a in sequential strided_2 strided_8 random; do
            against $s/memory_bandwidth_kernel.py::memory_bandwidth_kernel "a=randn:f32[1048576]" "b=randn:f32[1048576];seed=2" "c=zeros:f32[1048576]" scalar=1.5 "operation=\"$o\"" "access_pattern=\"$a\"" --grid 8192
        done
    done
    against examples/threads.py::matmul "a=randn:f32[300,200]" "b=randn:f32[200,250];seed=2" "c=zeros:f32[300,250]" --grid 8,10 --block 64
    against examples/threads.py::histogram "x=arange:i32[1000000]" "counts=zeros:i32[256]" --grid 64
    against examples/threads.py::normalise "x=randn:bf16[256,1000]" "y=zeros:bf16[256,1000]" --grid 256 --block 96
    [ $failed = 0 ] && echo "all right"
}

users() {
    local k=examples/cutile.py
    # A small case against the CPU, then the large one's second run, which finds its code in the cache.
    pair() {
        local name=$1 grid=$2 small=$3
        shift 3
        # shellcheck disable=SC2086
        "$T" check $k::"$name" $small --device cuda --against cpu 2>&1 | tail -1
        for _ in 1 2; do "$T" run $k::"$name" "$@" --grid "$grid" --device cuda 2>&1 | grep -oE 'ran in .*|error.*' | head -1; done | tail -1 | sed "s/^/$name /"
    }
    pair matmul 2048 "A=randn:bf16[256,192] B=randn:bf16[192,512] C=empty:bf16[256,512] tm=128 tn=256 tk=64 --grid 4" "A=randn:bf16[8192,8192]" "B=randn:bf16[8192,8192]" "C=empty:bf16[8192,8192]" tm=128 tn=256 tk=64
    pair persistent_matmul 132 "A=randn:bf16[512,192] B=randn:bf16[192,768] C=empty:bf16[512,768] tm=128 tn=256 tk=64 --grid 5" "A=randn:bf16[8192,8192]" "B=randn:bf16[8192,8192]" "C=empty:bf16[8192,8192]" tm=128 tn=256 tk=64
    pair softmax 528 "output=empty:bf16[33,1000] input=randn:bf16[33,1000] n_rows=33 TILE=1024 DIM_COLS=1000 --grid 7" "output=empty:bf16[8192,8192]" "input=randn:bf16[8192,8192]" n_rows=8192 TILE=8192 DIM_COLS=8192
    for causal in False True; do
        pair fmha 64,32 "Q=randn:bf16[1,2,256,128] K=randn:bf16[1,2,256,128] V=randn:bf16[1,2,256,128] Out=empty:bf16[1,2,256,128] qk_scale=0.088 input_pos=0 TILE_D=128 H=2 TILE_M=128 TILE_N=128 GROUP=1 CAUSAL=$causal EVEN_K=True --grid 2,2" "Q=randn:bf16[2,16,8192,128]" "K=randn:bf16[2,16,8192,128]" "V=randn:bf16[2,16,8192,128]" "Out=empty:bf16[2,16,8192,128]" qk_scale=0.088 input_pos=0 TILE_D=128 H=16 TILE_M=128 TILE_N=128 GROUP=1 CAUSAL=$causal EVEN_K=True
    done
    pair rms_norm 16384 "x=randn:bf16[16,2000] w=randn:bf16[2000] out=empty:bf16[16,2000] Rstd=empty:f32[16] N=2000 eps=1e-5 TILE=1024 --grid 16" "x=randn:bf16[16384,8192]" "w=randn:bf16[8192]" "out=empty:bf16[16384,8192]" "Rstd=empty:f32[16384]" N=8192 eps=1e-5 TILE=1024
    pair layer_norm 16384 "X=randn:bf16[16,2000] W=randn:bf16[2000] B=randn:bf16[2000] Y=empty:bf16[16,2000] Mean=empty:f32[16] Rstd=empty:f32[16] eps=1e-5 TILE_N=1024 --grid 16" "X=randn:bf16[16384,8192]" "W=randn:bf16[8192]" "B=randn:bf16[8192]" "Y=empty:bf16[16384,8192]" "Mean=empty:f32[16384]" "Rstd=empty:f32[16384]" eps=1e-5 TILE_N=1024
}

memcheck() {
    command -v compute-sanitizer >/dev/null || { echo "skipped: compute-sanitizer is not installed"; return; }
    compute-sanitizer --tool memcheck "$T" bench quick --device cuda --timed 0 --unwatched
}

seed() {
    local resume=()
    [ -e "$OUT/seed.jsonl" ] && resume=(--resume "$OUT/seed.jsonl") || resume=(--out "$OUT/seed.jsonl")
    "$T" bench seed --device cuda --timed 600 "${resume[@]}" --time-limit "${SECONDS_LIMIT:-200}"
}

for part in "$@"; do
    case $part in
        edges) "$T" check --device cuda ;;
        threads) threads ;;
        language) python3 python/language.py "$T" "$OUT/language" cuda; rm -rf "$OUT/language" ;;
        users) users ;;
        memcheck) memcheck ;;
        chip) ./against_chip --out "$OUT/against_chip.txt" --programs 10240 ;;
        seed) seed ;;
        timeline) "$T" run examples/cutile.py::matmul "A=randn:bf16[4096,4096]" "B=randn:bf16[4096,4096]" "C=empty:bf16[4096,4096]" tm=128 tn=256 tk=64 --grid 512 --device cuda --timeline "$OUT/timeline.json" ;;
        *) echo "there is no part $part"; exit 5 ;;
    esac >"$OUT/$part.txt" 2>&1
    echo "$part: exit $? after $((SECONDS - start)) s in all"
    grep -v '^ ' "$OUT/$part.txt" | tail -"${LINES_SHOWN:-12}" | cut -c1-240
done
