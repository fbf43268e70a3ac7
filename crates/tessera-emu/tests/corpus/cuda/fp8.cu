// fp8 in both formats: from f32 and f16 with saturation, back to f16, and a product of packed quadruples.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void to_fp8(const float* x, unsigned char* e4, unsigned char* e5, unsigned short* pairs) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    e4[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    e5[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
    __half2_raw h = __float22half2_rn({x[i], -x[i]});
    pairs[i] = __nv_cvt_halfraw2_to_fp8x2(h, __NV_SATFINITE, __NV_E4M3);
}

extern "C" __global__ void from_fp8(const unsigned char* codes, float* e4, float* e5) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    e4[i] = __half2float(__nv_cvt_fp8_to_halfraw(codes[i], __NV_E4M3));
    e5[i] = __half2float(__nv_cvt_fp8_to_halfraw(codes[i], __NV_E5M2));
}

extern "C" __global__ void scale_fp8(const __nv_fp8x4_e4m3* x, float factor, __nv_fp8x4_e4m3* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = (float4)x[i];
    y[i] = __nv_fp8x4_e4m3(make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor));
}
