// A warpgroup's product: 64 x 64 x 64 in bf16 from shared memory without swizzle, then stmatrix on the way out.
#include <cstdint>
#include <cuda_bf16.h>

__device__ uint64_t descriptor(const void* tile, unsigned leading, unsigned stride) {
    uint64_t at = (uint64_t)(__cvta_generic_to_shared(tile) >> 4) & 0x3fff;
    return at | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

// Both factors lie in 8 x 8 core matrices: [k / 8][row / 8][row % 8][k % 8].
extern "C" __global__ __launch_bounds__(128) void wgmma_tile(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
    __shared__ alignas(128) __nv_bfloat16 as[8][8][8][8], bs[8][8][8][8];
    for (int i = threadIdx.x; i < 4096; i += 128) {
        int r = i / 64, k = i % 64;
        as[k / 8][r / 8][r % 8][k % 8] = a[i];
        bs[k / 8][r / 8][r % 8][k % 8] = b[i];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[32];
    for (int i = 0; i < 32; i++) d[i] = 1.0f;
    // The sums are in their registers before the fence.
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(d[i])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; k++)
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
            "%32, %33, 1, 1, 1, 0, 0;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
              "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
              "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
              "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "l"(descriptor(as[k * 2], 1024, 128)), "l"(descriptor(bs[k * 2], 1024, 128)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 32; i++) {
        int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        c[row * 64 + col] = d[i];
    }
}

// Transposes 8 x 8 tiles of 16-bit numbers by the matrix moves alone.
extern "C" __global__ void matrix_moves(const unsigned* x, unsigned* y, unsigned short* z) {
    __shared__ alignas(16) unsigned short tile[8][8];
    unsigned v = x[threadIdx.x], t;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
    y[threadIdx.x] = t;
    unsigned at = (unsigned)__cvta_generic_to_shared(tile[threadIdx.x % 8]);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(at), "r"(v) : "memory");
    __syncwarp();
    z[threadIdx.x] = tile[threadIdx.x / 8][threadIdx.x % 8];
    z[threadIdx.x + 32] = tile[4 + threadIdx.x / 8][threadIdx.x % 8];
}
