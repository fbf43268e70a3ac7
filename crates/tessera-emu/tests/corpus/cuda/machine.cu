// Registers of the machine: clocks only run forward, identities are in range; waiting for an earlier grid.
#include <cuda_runtime.h>

extern "C" __global__ void clocks(long long* out) {
    long long from = clock64();
    unsigned low = clock();
    unsigned long long timer;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer));
    __nanosleep(100);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sm, lane, warp;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    out[i * 6] = clock64() - from;
    out[i * 6 + 1] = clock() - low;
    out[i * 6 + 2] = timer != 0;
    out[i * 6 + 3] = sm;
    out[i * 6 + 4] = lane;
    out[i * 6 + 5] = warp;
}

// Three dimensions of threads and blocks, numbered by hand.
extern "C" __global__ void numbered(unsigned* out) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block << 16 | thread << 4 | warpSize >> 3;
}
