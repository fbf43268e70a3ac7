// cuda::barrier and memcpy_async: arrivals and waits apart, copies that a barrier counts.
#include <cuda/barrier>
#include <cooperative_groups.h>

using barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void staged_sum(const int* x, int* out, int chunks) {
    __shared__ alignas(16) int data[2][256];
    __shared__ barrier bars[2];
    auto block = cooperative_groups::this_thread_block();
    if (threadIdx.x == 0) {
        init(&bars[0], blockDim.x);
        init(&bars[1], blockDim.x);
#if __CUDA_ARCH__ >= 900
        // The copy engine signals them.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    }
    block.sync();
    const int* from = x + blockIdx.x * chunks * 256;
    cuda::memcpy_async(block, data[0], from, cuda::aligned_size_t<16>(1024), bars[0]);
    int sum = 0;
    for (int c = 0; c < chunks; c++) {
        if (c + 1 < chunks) cuda::memcpy_async(block, data[(c + 1) % 2], from + (c + 1) * 256, cuda::aligned_size_t<16>(1024), bars[(c + 1) % 2]);
        bars[c % 2].arrive_and_wait();
        for (int i = threadIdx.x; i < 256; i += blockDim.x) sum += data[c % 2][i] * (c + 1);
        block.sync();
    }
    atomicAdd(&out[blockIdx.x], sum);
}

// Two halves of the block hand numbers to each other; arrival and wait are apart.
extern "C" __global__ void exchange(const int* x, int* y, int rounds) {
    __shared__ int slots[128];
    __shared__ barrier full, empty;
    if (threadIdx.x == 0) {
        init(&full, 256);
        init(&empty, 256);
    }
    __syncthreads();
    int half = threadIdx.x / 128, t = threadIdx.x % 128;
    for (int r = 0; r < rounds; r++) {
        if (half == 0) slots[t] = x[(blockIdx.x * rounds + r) * 128 + t] * 2;
        full.arrive_and_wait();
        if (half == 1) y[(blockIdx.x * rounds + r) * 128 + t] = slots[127 - t];
        auto token = empty.arrive();
        empty.wait(std::move(token));
    }
}
