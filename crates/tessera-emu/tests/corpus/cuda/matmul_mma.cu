// C = A * B^T in bf16: cp.async into two buffers, ldmatrix, mma.sync. One 32 x 32 tile a block of four warps.
#include <cstdint>
#include <cuda_bf16.h>

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void fetch(__nv_bfloat16 (*to)[40], const __nv_bfloat16* from, int k, int rows_left) {
    int t = threadIdx.x, row = t / 4, chunk = t % 4 * 8;
    int bytes = row < rows_left ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(&to[row][chunk])),
                 "l"(from + (bytes ? row * k + chunk : 0)), "r"(bytes));
}

extern "C" __global__ __launch_bounds__(128) void mma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n,
                                                           int k) {
    __shared__ __align__(16) __nv_bfloat16 as[2][32][40], bs[2][32][40];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = blockIdx.y * 32, col0 = blockIdx.x * 32, wr = warp / 2 * 16, wc = warp % 2 * 16;
    float sum[2][4] = {};
    fetch(as[0], a + row0 * k, k, m - row0);
    fetch(bs[0], b + col0 * k, k, n - col0);
    asm volatile("cp.async.commit_group;");
    for (int step = 0; step < k / 32; step++) {
        int now = step % 2;
        if (step + 1 < k / 32) {
            fetch(as[1 - now], a + row0 * k + (step + 1) * 32, k, m - row0);
            fetch(bs[1 - now], b + col0 * k + (step + 1) * 32, k, n - col0);
        }
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            unsigned fa[4], fb[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                         : "r"(shared_address(&as[now][wr + lane % 16][kk + lane / 16 * 8])));
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3])
                         : "r"(shared_address(&bs[now][wc + lane % 8 + lane / 16 * 8][kk + lane / 8 % 2 * 8])));
            for (int j = 0; j < 2; j++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
                             : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[j * 2]), "r"(fb[j * 2 + 1]));
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; j++)
        for (int e = 0; e < 4; e++) {
            int row = row0 + wr + lane / 4 + e / 2 * 8, col = col0 + wc + j * 8 + lane % 4 * 2 + e % 2;
            if (row < m && col < n) c[row * n + col] = sum[j][e];
        }
}
