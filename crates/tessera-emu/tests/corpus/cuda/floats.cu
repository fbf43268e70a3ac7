// f32 and f64: every rounding, the fast approximations, and library functions with their slow paths.

extern "C" __global__ void rounded(const float* a, const float* b, const float* c, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i], z = c[i];
    float r[24] = {__fadd_rn(x, y), __fadd_rz(x, y), __fadd_ru(x, y), __fadd_rd(x, y), __fmul_rn(x, y), __fmul_rz(x, y), __fmul_ru(x, y),
                   __fmul_rd(x, y), __fmaf_rn(x, y, z), __fmaf_rz(x, y, z), __fmaf_ru(x, y, z), __fmaf_rd(x, y, z), __fdiv_rn(x, y),
                   __fdiv_rz(x, y), __fdiv_ru(x, y), __fdiv_rd(x, y), __fsqrt_rn(x), __fsqrt_rz(x), __fsqrt_ru(x), __fsqrt_rd(x),
                   __frcp_rn(x), __frcp_ru(x), x - y, __saturatef(x)};
    for (int k = 0; k < 24; k++) out[i * 24 + k] = r[k];
}

extern "C" __global__ void rounded_double(const double* a, const double* b, const double* c, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i], z = c[i];
    double r[14] = {x + y, __dadd_rz(x, y), __dadd_ru(x, y), __dmul_rd(x, y), __fma_rn(x, y, z), __fma_ru(x, y, z), x / y, __ddiv_rz(x, y),
                    sqrt(x), __dsqrt_ru(x), __drcp_rn(x), floor(x), (double)(float)x, (double)__double2float_rz(x)};
    for (int k = 0; k < 14; k++) out[i * 14 + k] = r[k];
}

extern "C" __global__ void converted(const float* a, const double* d, int* ints, unsigned long long* longs, float* floats) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
    int r[8] = {__float2int_rn(x), __float2int_rz(x), __float2int_ru(x), __float2int_rd(x), (int)__float2uint_rn(x), __double2int_rn(d[i]),
                (int)__double2uint_rz(d[i]), __float_as_int(x) >> 4};
    unsigned long long l[4] = {(unsigned long long)__float2ll_rn(x), __float2ull_rz(x), (unsigned long long)__double2ll_rd(d[i]),
                               __double2ull_rn(d[i])};
    long long big = (long long)__double_as_longlong(d[i]);
    float f[6] = {__int2float_rz((int)big), __uint2float_ru((unsigned)big), __ll2float_rn(big), __ull2float_rd((unsigned long long)big),
                  (float)__ll2double_rn(big), rintf(x)};
    for (int k = 0; k < 8; k++) ints[i * 8 + k] = r[k];
    for (int k = 0; k < 4; k++) longs[i * 4 + k] = l[k];
    for (int k = 0; k < 6; k++) floats[i * 6 + k] = f[k];
}

extern "C" __global__ void fast(const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
    float r[8] = {__sinf(x), __cosf(x), __expf(x * 0.1f), __logf(fabsf(x) + 0.1f), __fdividef(1.0f, x), __frsqrt_rn(fabsf(x) + 0.1f),
                  __powf(fabsf(x) + 0.1f, 1.5f), __tanf(x * 0.1f)};
    for (int k = 0; k < 8; k++) out[i * 8 + k] = r[k];
}

// Arguments up to 1e6: the sine's exact reduction is reached.
extern "C" __global__ void library(const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
    float small = fmodf(x, 10.0f);
    float r[12] = {sinf(x), cosf(x), expf(small), logf(fabsf(x)), powf(fabsf(x), 0.3f), erff(small), tanhf(small), cbrtf(x), hypotf(x, 3.0f),
                   atan2f(x, 2.0f), log1pf(fabsf(small)), normcdff(small * 0.3f)};
    for (int k = 0; k < 12; k++) out[i * 12 + k] = r[k];
}

extern "C" __global__ void library_double(const double* a, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i];
    double r[6] = {sin(x), exp(fmod(x, 20.0)), log(fabs(x)), pow(fabs(x), 0.7), atan(x), rsqrt(fabs(x))};
    for (int k = 0; k < 6; k++) out[i * 6 + k] = r[k];
}
