// Sums, extremes and votes: shuffles, warp reductions, shared memory, one atomic a block.
#include <cstdint>

__device__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xffffffff, x, step);
    return x;
}

extern "C" __global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float partial[32];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        sum = warp_sum(sum);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

// For each warp: sum, min, max, and, or, xor of its 32 numbers; the ballot of the odd ones; whether all or any are above 100.
extern "C" __global__ void warp_facts(const int* x, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i];
    unsigned facts[9];
    facts[0] = __shfl_xor_sync(0xffffffff, v, 1);
    int sum = v;
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xffffffff, sum, step);
        if (threadIdx.x % 32 >= step) sum += other;
    }
    facts[1] = sum;
    facts[2] = __ballot_sync(0xffffffff, v & 1);
    facts[3] = __all_sync(0xffffffff, v > 100);
    facts[4] = __any_sync(0xffffffff, v > 100);
    facts[5] = __match_any_sync(0xffffffff, v & 7);
    int same;
    facts[6] = __match_all_sync(0xffffffff, blockIdx.x ? 7 : v >> 20, &same);
    facts[6] ^= same;
    facts[7] = __uni_sync(0xffffffff, v > 0);
    // Lanes of the upper half only.
    facts[8] = 0;
    if (threadIdx.x & 16) facts[8] = __activemask();
    for (int k = 0; k < 9; k++) out[i * 9 + k] = facts[k];
}

extern "C" __global__ void warp_redux(const unsigned* x, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = x[i], m = 0xffffffff, r[8];
    r[0] = __reduce_add_sync(m, v);
    r[1] = __reduce_min_sync(m, v);
    r[2] = __reduce_max_sync(m, v);
    r[3] = __reduce_and_sync(m, v);
    r[4] = __reduce_or_sync(m, v);
    r[5] = __reduce_xor_sync(m, v);
    r[6] = __reduce_min_sync(m, (int)v);
    r[7] = __reduce_max_sync(m, (int)v);
    for (int k = 0; k < 8; k++) out[i * 8 + k] = r[k];
}

// The blocks' counters: barriers that count.
extern "C" __global__ void block_votes(const int* x, int* out) {
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    int odd = __syncthreads_count(v & 1);
    int all = __syncthreads_and(v > -1000);
    int any = __syncthreads_or(v > 1000);
    if (threadIdx.x == 0) {
        out[blockIdx.x * 3] = odd;
        out[blockIdx.x * 3 + 1] = all != 0;
        out[blockIdx.x * 3 + 2] = any != 0;
    }
}
