// Integers: the bit and byte operations of the language and its intrinsics, 64 and 128 bits, packed bytes.

extern "C" __global__ void words(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = a[i], y = b[i], z = c[i];
    unsigned r[24] = {x + y * z, x / (y | 1), x % (y | 1), (unsigned)((int)x / (int)(y | 1)), (unsigned)((int)x % (int)(y | 1)),
                      x << (z & 31), x >> (z & 31), (unsigned)((int)x >> (z & 31)), __umulhi(x, y), (unsigned)__mulhi((int)x, (int)y),
                      __umul24(x, y), (unsigned)__mul24((int)x, (int)y), __usad(x, y, z), (unsigned)__sad((int)x, (int)y, z), __brev(x),
                      (unsigned)__clz(x), (unsigned)__popc(x), (unsigned)__ffs(x), __byte_perm(x, y, z), __funnelshift_l(x, y, z),
                      __funnelshift_rc(x, y, z), (unsigned)__dp4a((int)x, (int)y, (int)z), (x & y) ^ (~z | x), __fns(x, z & 31, (int)(y & 7) - 3)};
    for (int k = 0; k < 24; k++) out[i * 24 + k] = r[k];
}

extern "C" __global__ void longs(const unsigned long long* a, const unsigned long long* b, unsigned long long* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = a[i], y = b[i];
    unsigned __int128 wide = (unsigned __int128)x * y + x;
    unsigned long long r[14] = {x * y, x / (y | 1), x % (y | 1), (unsigned long long)((long long)x / (long long)(y | 1)), x << (y & 63),
                                (unsigned long long)((long long)x >> (y & 63)), __umul64hi(x, y),
                                (unsigned long long)__mul64hi((long long)x, (long long)y), (unsigned long long)wide,
                                (unsigned long long)(wide >> 64), __brevll(x), (unsigned long long)__clzll(x),
                                (unsigned long long)__popcll(x), (unsigned long long)(wide % 1000003)};
    for (int k = 0; k < 14; k++) out[i * 14 + k] = r[k];
}

// Four bytes or two halves in one word.
extern "C" __global__ void packed(const unsigned* a, const unsigned* b, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = a[i], y = b[i];
    unsigned r[12] = {__vadd4(x, y), __vsub4(x, y), __vabsdiffu4(x, y), __vmaxs4(x, y), __vminu4(x, y), __vaddss2(x, y),
                      __vavgu4(x, y), __vcmpgtu4(x, y), __vmaxs2(x, y), __vsadu4(x, y), __vneg4(x), __vimax_s16x2_relu(x, y)};
    for (int k = 0; k < 12; k++) out[i * 12 + k] = r[k];
}

// Small types: conversions, sign extension, saturation, and shorts.
extern "C" __global__ void small(const signed char* a, const short* b, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    signed char x = a[i];
    short y = b[i];
    unsigned char u = x;
    unsigned short v = y;
    int r[8] = {x * y, u + v, (signed char)(x * y), (unsigned short)(y * y), (short)(v >> 3) / (x | 1), (unsigned char)(y / 5), max((int)x, (int)y),
                (int)((long long)x << 20 >> 12)};
    for (int k = 0; k < 8; k++) out[i * 8 + k] = r[k];
}
