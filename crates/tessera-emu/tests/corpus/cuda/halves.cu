// Arithmetic of f16 and bf16, alone and in pairs: each result has a place of its own behind the operands'.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void f16_pairs(const half2* a, const half2* b, const half2* c, half2* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half2 x = a[i], y = b[i], z = c[i];
    half2 r[12] = {__hadd2(x, y), __hsub2(x, y), __hmul2(x, y), __hfma2(x, y, z), __hadd2_sat(x, y), __hfma2_relu(x, y, z),
                   __hmax2(x, y), __hmin2_nan(x, y), __habs2(x), __hneg2(x), __hgt2(x, y), h2exp2(z)};
    for (int k = 0; k < 12; k++) out[i * 12 + k] = r[k];
}

extern "C" __global__ void bf16_pairs(const __nv_bfloat162* a, const __nv_bfloat162* b, const __nv_bfloat162* c, __nv_bfloat162* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat162 x = a[i], y = b[i], z = c[i];
    __nv_bfloat162 r[9] = {__hadd2(x, y), __hsub2(x, y), __hmul2(x, y), __hfma2(x, y, z), __hfma2_relu(x, y, z), __hmax2(x, y),
                           __hmin2_nan(x, y), __habs2(x), __hneg2(x)};
    for (int k = 0; k < 9; k++) out[i * 9 + k] = r[k];
}

// Single numbers: quotients, roots, comparisons, conversions to and from integers in every rounding.
extern "C" __global__ void f16_scalars(const half* a, const half* b, float* out, int* ints) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half x = a[i], y = b[i];
    float* f = out + i * 8;
    f[0] = __half2float(__hdiv(x, y));
    f[1] = __half2float(hsqrt(__habs(x)));
    f[2] = __half2float(hrint(x));
    f[3] = __half2float(hfloor(x));
    f[4] = __half2float(hceil(x));
    f[5] = __half2float(htrunc(x));
    f[6] = __half2float(__float2half_rz(__half2float(x) * 1.0009765625f));
    f[7] = __half2float(__hmul(x, __int2half_rn(i)));
    int* n = ints + i * 8;
    n[0] = __half2int_rn(x);
    n[1] = __half2int_rz(x);
    n[2] = __half2int_rd(x);
    n[3] = __half2int_ru(x);
    n[4] = __hlt(x, y) + 2 * __heq(x, y) + 4 * __hgeu(x, y) + 8 * __hisnan(x);
    n[5] = __half2ushort_rn(__habs(x));
    n[6] = __half2ll_rd(x) >> 1;
    n[7] = __half_as_ushort(__ushort2half_ru((unsigned short)(i * 517)));
}
