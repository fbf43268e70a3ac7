// Layer norm of bf16 rows: 16-byte loads, mean and variance by Welford's method, merged over lanes and warps.
#include <cuda_bf16.h>

struct Moments { float mean, m2, count; };

__device__ Moments merge(Moments a, Moments b) {
    float count = a.count + b.count;
    if (count == 0.0f) return a;
    float delta = b.mean - a.mean, part = b.count / count;
    return {a.mean + delta * part, a.m2 + b.m2 + delta * delta * a.count * part, count};
}

extern "C" __global__ void layer_norm(const __nv_bfloat16* x, const float* gain, const float* bias, __nv_bfloat16* y, int n,
                                      float epsilon) {
    __shared__ Moments parts[32];
    const uint4* row = (const uint4*)(x + blockIdx.x * n);
    uint4* out = (uint4*)(y + blockIdx.x * n);
    Moments own = {0, 0, 0};
    for (int i = threadIdx.x; i < n / 8; i += blockDim.x) {
        uint4 packed = row[i];
        const __nv_bfloat16* v = (const __nv_bfloat16*)&packed;
        for (int e = 0; e < 8; e++) {
            float f = __bfloat162float(v[e]);
            own.count += 1.0f;
            float delta = f - own.mean;
            own.mean += delta / own.count;
            own.m2 += delta * (f - own.mean);
        }
    }
    for (int step = 16; step; step /= 2)
        own = merge(own, {__shfl_xor_sync(~0u, own.mean, step), __shfl_xor_sync(~0u, own.m2, step), __shfl_xor_sync(~0u, own.count, step)});
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    own = parts[0];
    for (int w = 1; w < blockDim.x / 32; w++) own = merge(own, parts[w]);
    float scale = rsqrtf(own.m2 / n + epsilon);
    for (int i = threadIdx.x; i < n / 8; i += blockDim.x) {
        uint4 packed = row[i];
        __nv_bfloat162* v = (__nv_bfloat162*)&packed;
        for (int e = 0; e < 4; e++) {
            float2 f = __bfloat1622float2(v[e]);
            int at = i * 8 + e * 2;
            f.x = (f.x - own.mean) * scale * gain[at] + bias[at];
            f.y = (f.y - own.mean) * scale * gain[at + 1] + bias[at + 1];
            v[e] = __float22bfloat162_rn(f);
        }
        out[i] = packed;
    }
}
