/* Host time of one bare cuLaunchKernel, beside which prepared launches are measured: an empty kernel with eight parameters.
   cc -O2 bare.c -o bare -ldl && ./bare */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*fn)();
static const char *text =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f,"
    " .param .f32 g, .param .u32 h)\n{\n ret;\n}\n";

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) return 1;
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        dlsym(lib, "cuLaunchKernel");
    void *context, *module, *function, *stream;
    long a[6] = {0};
    float g = 1;
    unsigned h = 7;
    void *params[8] = {a, a + 1, a + 2, a + 3, a + 4, a + 5, &g, &h};
    ((int (*)(unsigned))dlsym(lib, "cuInit"))(0);
    ((int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((int (*)(void *))dlsym(lib, "cuCtxSetCurrent"))(context);
    ((int (*)(void **, const void *))dlsym(lib, "cuModuleLoadData"))(&module, text);
    if (((int (*)(void **, void *, const char *))dlsym(lib, "cuModuleGetFunction"))(&function, module, "empty")) return 2;
    ((int (*)(void **, unsigned))dlsym(lib, "cuStreamCreate"))(&stream, 1);
    int (*wait)(void *) = dlsym(lib, "cuStreamSynchronize");
    double times[15];
    for (int batch = 0; batch < 15; batch++) {
        struct timespec start, end;
        wait(stream);
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int i = 0; i < 1000; i++) launch(function, 1, 1, 1, 128, 1, 1, 0, stream, params, 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        times[batch] = (end.tv_sec - start.tv_sec) * 1e3 + (end.tv_nsec - start.tv_nsec) * 1e-6;
    }
    wait(stream);
    qsort(times, 15, sizeof times[0], by_value);
    printf("{\"bare_us\": %.4f}\n", times[7]);
    return 0;
}
