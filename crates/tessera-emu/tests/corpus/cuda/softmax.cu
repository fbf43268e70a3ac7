// Softmax of rows: a warp a row with fast exponentials, and a block a row that keeps a running maximum.
#include <cuda_fp16.h>

extern "C" __global__ void softmax_warp(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float most = -INFINITY, sum = 0.0f;
    for (int i = lane; i < n; i += 32) most = fmaxf(most, x[row * n + i]);
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));
    for (int i = lane; i < n; i += 32) sum += __expf(x[row * n + i] - most);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    for (int i = lane; i < n; i += 32) y[row * n + i] = __fdividef(__expf(x[row * n + i] - most), sum);
}

struct Running { float most, sum; };

__device__ Running merge(Running a, Running b) {
    float most = fmaxf(a.most, b.most);
    return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}

extern "C" __global__ void softmax_online(const half* x, half* y, int n) {
    __shared__ Running parts[8];
    const half* row = x + blockIdx.x * n;
    Running own = {-1e30f, 0.0f};
    for (int i = threadIdx.x; i < n; i += blockDim.x) own = merge(own, {__half2float(row[i]), 1.0f});
    for (int step = 16; step; step /= 2)
        own = merge(own, {__shfl_xor_sync(0xffffffff, own.most, step), __shfl_xor_sync(0xffffffff, own.sum, step)});
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    own = parts[0];
    for (int w = 1; w < blockDim.x / 32; w++) own = merge(own, parts[w]);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[blockIdx.x * n + i] = __float2half(expf(__half2float(row[i]) - own.most) / own.sum);
}
