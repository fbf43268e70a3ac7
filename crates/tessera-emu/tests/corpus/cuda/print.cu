// What a kernel says: printf with every kind of argument, and an assertion that holds.
#include <cassert>
#include <cstdio>

extern "C" __global__ void say(const int* x, int n) {
    int i = threadIdx.x;
    assert(n > 0);
    if (i >= n) return;
    printf("thread %d of %u: x = %5d, hex %08x, %c%%\n", i, (unsigned)n, x[i], x[i], 'a' + i);
    if (i == 0) printf("%.3f and %e, long %lld, unsigned %llu, name %s, width [%-6d] [%06d]\n", 1.5 * x[0], 12345.678, -5000000000ll,
                       18446744073709551615ull, "tile", 42, 42);
    if (i == 1) printf("no arguments\n");
}
