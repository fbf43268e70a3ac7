// Hopper's copy engine: boxes by a tensor map, lines by size, and the way back; mbarriers with bytes.
#include <cstdint>
#include <cuda.h>

__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void wait(uint64_t* bar, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(at(bar)),
                 "r"(parity) : "memory");
}

// Adds 1 to every element of a matrix, box by box; boxes at the edge are clipped.
extern "C" __global__ void add_one(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) int box[16][32];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int x = blockIdx.x * 32, y = blockIdx.y * 16;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&bar)), "r"((unsigned)sizeof(box)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at(box)),
                     "l"(&in), "r"(x), "r"(y), "r"(at(&bar)) : "memory");
    }
    wait(&bar, 0);
    for (int i = threadIdx.x; i < 512; i += blockDim.x) box[i / 32][i % 32] += 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out), "r"(x), "r"(y), "r"(at(box))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// A ring of lines: one thread fetches, all work, the sums go back by a bulk reduction.
extern "C" __global__ void ring_sum(const float* x, float* total, int lines) {
    __shared__ alignas(16) float ring[2][128];
    __shared__ alignas(16) float sums[128];
    __shared__ uint64_t full[2], empty[2];
    int t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < 2; s++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&full[s])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(at(&empty[s])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    float sum = 0.0f;
    if (t >= 128) {
        if (t == 128)
            for (int i = 0; i < lines; i++) {
                wait(&empty[i % 2], (i / 2 + 1) % 2);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(at(&full[i % 2])) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(at(ring[i % 2])),
                             "l"(x + (blockIdx.x * lines + i) * 128), "r"(at(&full[i % 2])) : "memory");
            }
    } else {
        for (int i = 0; i < lines; i++) {
            wait(&full[i % 2], i / 2 % 2);
            sum += ring[i % 2][t];
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(&empty[i % 2])) : "memory");
        }
        sums[t] = sum;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (t == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" ::"l"(total), "r"(at(sums)) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
