// Every atomic of the language on global and shared memory; scopes and orders.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/atomic>

// All threads change the same cells; the end does not depend on their order.
extern "C" __global__ void global_cells(const int* x, int* ints, unsigned* words, unsigned long long* longs, float* f, double* d) {
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&ints[0], v);
    atomicSub(&ints[1], v);
    atomicMin(&ints[2], v);
    atomicMax(&ints[3], v);
    atomicAnd(&words[0], (unsigned)v | 0xff);
    atomicOr(&words[1], (unsigned)v & 0xf0f0);
    atomicXor(&words[2], (unsigned)v);
    atomicInc(&words[3], 99);
    atomicDec(&words[4], 49);
    atomicMin(&words[5], (unsigned)v);
    atomicMax_block(&words[6 + blockIdx.x], (unsigned)v);
    atomicAdd(&longs[0], (unsigned long long)v);
    atomicMax((long long*)&longs[1], (long long)v << 20);
    atomicXor_system(&longs[2], (unsigned long long)v << 32);
    atomicAdd(f, (float)(v & 15));
    atomicAdd(d, 0.25 * (v & 15));
}

// A product by compare-and-swap, and a list by exchange: its nodes all hang together.
extern "C" __global__ void swapped(const int* x, unsigned* product, int* head, int* next) {
    __shared__ unsigned local;
    if (threadIdx.x == 0) local = 1;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned factor = x[i] | 1, seen = atomicAdd(&local, 0), wanted;
    do {
        wanted = seen;
        seen = atomicCAS(&local, wanted, wanted * factor);
    } while (seen != wanted);
    next[i] = atomicExch(head, i);
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned old = atomicAdd(product, 0), now;
        do {
            now = old;
            old = atomicCAS(product, now, now * local);
        } while (old != now);
    }
}

extern "C" __global__ void halves(const half2* x, half2* sum, __nv_bfloat162* other, half* one, unsigned short* cell) {
    half2 v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(sum, v);
    atomicAdd(other, __float22bfloat162_rn(__half22float2(v)));
    atomicAdd(one, __low2half(v));
    atomicCAS(cell, (unsigned short)threadIdx.x, (unsigned short)(threadIdx.x + 1));
}

// Messages: each block but the first waits for the one before it and passes a number on.
extern "C" __global__ void passed(int* box, int* out) {
    if (threadIdx.x != 0) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> own(box[blockIdx.x]), next(box[blockIdx.x + 1]);
    int seen;
    while ((seen = own.load(cuda::memory_order_acquire)) == 0) {}
    out[blockIdx.x] = seen;
    next.fetch_add(seen + 1, cuda::memory_order_acq_rel);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
    cuda::atomic_ref<int, cuda::thread_scope_system>(out[blockIdx.x]).fetch_max(1, cuda::memory_order_relaxed);
}
