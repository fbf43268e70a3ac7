// Counting: atomics in shared and global memory, and counters that lanes of a warp share.

extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (local[i]) atomicAdd(&bins[i], local[i]);
}

// One atomic for all lanes of a warp that have the same value.
extern "C" __global__ void histogram_by_warp(const unsigned char* x, unsigned* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned same = __match_any_sync(__activemask(), x[i]);
    int leader = __ffs(same) - 1;
    if (threadIdx.x % 32 == leader) atomicAdd(&bins[x[i]], __popc(same));
}

// Positive numbers moved together; their order is free.
extern "C" __global__ void compact(const int* x, int* out, unsigned* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool take = i < n && x[i] > 0;
    unsigned takers = __ballot_sync(0xffffffff, take);
    unsigned base = 0;
    if (threadIdx.x % 32 == 0 && takers) base = atomicAdd(count, __popc(takers));
    base = __shfl_sync(0xffffffff, base, 0);
    if (take) out[base + __popc(takers & ((1u << (threadIdx.x % 32)) - 1))] = x[i];
}
