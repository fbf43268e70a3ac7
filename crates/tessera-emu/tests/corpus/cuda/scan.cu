// Prefix sums: within a block, and over all blocks in one pass in which a block waits for the one before it.
#include <cuda/atomic>

__device__ int inclusive(int v, int* warps) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xffffffff, v, step);
        if (lane >= step) v += other;
    }
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int w = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xffffffff, w, step);
            if (lane >= step) w += other;
        }
        warps[lane] = w;
    }
    __syncthreads();
    return v + (warp ? warps[warp - 1] : 0);
}

extern "C" __global__ void scan_block(const int* x, int* y, int n) {
    __shared__ int warps[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = inclusive(i < n ? x[i] : 0, warps);
    if (i < n) y[i] = sum;
}

struct Status { int ready, sum; };

extern "C" __global__ void scan_chained(const int* x, int* y, Status* status, unsigned* ticket, int n) {
    __shared__ int warps[32], number, before;
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1);
    __syncthreads();
    int i = number * blockDim.x + threadIdx.x;
    int sum = inclusive(i < n ? x[i] : 0, warps);
    if (threadIdx.x == blockDim.x - 1) {
        int base = 0;
        if (number > 0) {
            cuda::atomic_ref<int, cuda::thread_scope_device> ready(status[number - 1].ready);
            while (ready.load(cuda::memory_order_acquire) == 0) __nanosleep(20);
            base = status[number - 1].sum;
        }
        status[number].sum = base + sum;
        cuda::atomic_ref<int, cuda::thread_scope_device>(status[number].ready).store(1, cuda::memory_order_release);
        before = base;
    }
    __syncthreads();
    if (i < n) y[i] = before + sum;
}

// The same with the older means: a fence and a volatile flag.
extern "C" __global__ void scan_fenced(const int* x, int* y, volatile int* sums, volatile int* flags, int n) {
    __shared__ int warps[32], before;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = inclusive(i < n ? x[i] : 0, warps);
    if (threadIdx.x == blockDim.x - 1) {
        int base = 0;
        if (blockIdx.x > 0) {
            while (flags[blockIdx.x - 1] == 0) {}
            __threadfence();
            base = sums[blockIdx.x - 1];
        }
        sums[blockIdx.x] = base + sum;
        __threadfence();
        flags[blockIdx.x] = 1;
        before = base;
    }
    __syncthreads();
    if (i < n) y[i] = before + sum;
}
