// Copies under way while others are used: three stages of cp.async behind the pipeline interface.
#include <cuda_pipeline.h>

constexpr int STAGES = 3, WIDTH = 128;

extern "C" __global__ void smooth(const float4* x, float4* y, int tiles) {
    __shared__ float4 ring[STAGES][WIDTH];
    int t = threadIdx.x;
    const float4* from = x + blockIdx.x * tiles * WIDTH;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < tiles) __pipeline_memcpy_async(&ring[s][t], from + s * WIDTH + t, 16);
        __pipeline_commit();
    }
    for (int s = 0; s < tiles; s++) {
        int ahead = s + STAGES - 1;
        if (ahead < tiles) __pipeline_memcpy_async(&ring[ahead % STAGES][t], from + ahead * WIDTH + t, 16);
        __pipeline_commit();
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        float4 l = ring[s % STAGES][(t + WIDTH - 1) % WIDTH], m = ring[s % STAGES][t], r = ring[s % STAGES][(t + 1) % WIDTH];
        y[(blockIdx.x * tiles + s) * WIDTH + t] =
            make_float4(l.w + m.x + m.y, m.x + m.y + m.z, m.y + m.z + m.w, m.z + m.w + r.x);
        __syncthreads();
    }
}
