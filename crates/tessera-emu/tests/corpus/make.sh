#!/bin/bash
# Makes the PTX of this folder from its sources: bash make.sh OUT. Needs nvcc (13.0 made what is committed) and, for the
# kernels of triton_kernels.py, a Python with Triton (3.6.0). OUT gets one file a source, target and option.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
compile() { # source architecture label options...
    local name=$1 arch=$2 label=$3
    shift 3
    cd "$here/cuda"
    "${NVCC:-nvcc}" -std=c++17 -diag-suppress 20054 -arch="compute_${arch#sm_}" --ptx "$@" ${NVCC_FLAGS:-} -o "$out/$name.$label.ptx" "$name.cu"
    # Comments name the compiler's inputs and its build: nothing of them matters here.
    # Paths of this machine stand in file names and, as bytes, in the debug data's compile units.
    sed -i -e '/^\/\//d' -e '/^$/d' -e 's|"[^"]*/\([^"/]*\.[a-z]*\)"|"\1"|' -e '/\.section.*\.debug_\(info\|line\)$/,/}/d' \
        -e '/\.section.*\.debug_\(info\|line\) *{\?$/,/}/d' "$out/$name.$label.ptx"
}
for source in "$here"/cuda/*.cu; do
    name=$(basename "$source" .cu)
    # One target is enough where the two hardly differ; boxes, clusters and warpgroups began with sm_90.
    case $name in
        reduce | halves | block_barrier) arches="sm_80 sm_90a" ;;
        histogram | layer_norm | matmul | matmul_wmma | pipeline | softmax | sorting | stencil | transpose) arches=sm_80 ;;
        *) arches=sm_90a ;;
    esac
    for arch in $arches; do compile "$name" "$arch" "$arch" -O3 & done
done
for name in reduce calls print; do compile "$name" sm_80 debug -G & done
compile softmax sm_90a fast -use_fast_math -lineinfo &
compile floats sm_80 fast -use_fast_math &
wait
if [ "${TRITON:-yes}" = yes ]; then "${PYTHON:-python3}" "$here/triton_kernels.py" "$out"; fi
