/* Launches a matrix product from a bundle and checks it: `product BUNDLE [DEVICE [LAUNCHES]]`. With LAUNCHES it also tells what the program
 * spends on one of so many. docs/bundles.md says how it is built. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tessera.h"

enum { M = 96, N = 80, K = 64 };

/* Ends the program where a call failed. */
static void must(tessera_status status) {
    if (status != TESSERA_OK) {
        fprintf(stderr, "%s\n", tessera_last_error());
        exit(1);
    }
}

/* A row-major array of floats on the device. */
static tessera_tensor tensor(const tessera_device *device, const int64_t *shape, const float *contents) {
    tessera_tensor tensor = {.ndim = 2, .code = 2, .bits = 32, .lanes = 1, .shape = shape};
    size_t bytes = (size_t)(shape[0] * shape[1]) * sizeof(float);
    must(tessera_alloc(device, bytes, &tensor.data));
    if (contents) must(tessera_copy_to(device, tensor.data, contents, bytes));
    return tensor;
}

/* How many elements of a result are not the exact product of these whole numbers. */
static int wrong(const tessera_device *device, const tessera_tensor *result, float (*a)[K], float (*b)[N]) {
    static float c[M][N];
    int count = 0;
    must(tessera_copy_from(device, c, result->data, sizeof c));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[i][k] * b[k][j];
            count += c[i][j] != sum;
        }
    return count;
}

/* Microseconds of the processor's time since then, for each of so many. */
static double each(clock_t start, long count) { return (double)(clock() - start) / CLOCKS_PER_SEC / (double)count * 1e6; }

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: product BUNDLE [DEVICE [LAUNCHES]]\n");
        return 1;
    }
    tessera_bundle *bundle;
    tessera_device *device;
    must(tessera_open(arguments[1], &bundle));
    must(tessera_device_open(count > 2 ? arguments[2] : "cuda", &device));

    /* Small whole numbers: the product is exact, in whatever order it is summed. */
    static float a[M][K], b[K][N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) a[i][k] = (float)((i + 2 * k) % 7 - 3);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) b[k][j] = (float)((3 * k + j) % 5 - 2);

    const int64_t shape_a[] = {M, K}, shape_b[] = {K, N}, shape_c[] = {M, N};
    tessera_tensor A = tensor(device, shape_a, a[0]), B = tensor(device, shape_b, b[0]);
    tessera_tensor C = tensor(device, shape_c, NULL), D = tensor(device, shape_c, NULL);
    const tessera_argument operands[] = {
        {.name = "A", .kind = TESSERA_TENSOR, .value.tensor = &A},
        {.name = "B", .kind = TESSERA_TENSOR, .value.tensor = &B},
        {.name = "C", .kind = TESSERA_TENSOR, .value.tensor = &C},
    };
    must(tessera_launch(bundle, "product", device, NULL, NULL, operands, 3));

    /* What is launched again and again is prepared: checked and packed once. A launch then names what differs. */
    tessera_prepared *prepared;
    must(tessera_prepare(bundle, "product", device, NULL, operands, 3, &prepared));
    const tessera_argument into_d = {.name = "C", .kind = TESSERA_TENSOR, .value.tensor = &D};
    must(tessera_prepared_launch(prepared, NULL, &into_d, 1));
    must(tessera_synchronize(device));

    int mistakes = wrong(device, &C, a, b) + wrong(device, &D, a, b);
    const char *name = count > 2 ? arguments[2] : "cuda";
    printf("%d x %d x %d on %s: %d of %d elements are wrong\n", M, N, K, name, mistakes, 2 * M * N);

    long launches = count > 3 ? atol(arguments[3]) : 0;
    if (launches > 0) {
        clock_t start = clock();
        for (long i = 0; i < launches; i++) must(tessera_launch(bundle, "product", device, NULL, NULL, operands, 3));
        double plain = each(start, launches);
        must(tessera_synchronize(device));
        start = clock();
        for (long i = 0; i < launches; i++) must(tessera_prepared_launch(prepared, NULL, &into_d, 1));
        double changed = each(start, launches);
        must(tessera_synchronize(device));
        start = clock();
        for (long i = 0; i < launches; i++) must(tessera_prepared_launch(prepared, NULL, NULL, 0));
        printf("a launch: %.2f us; prepared: %.2f us, as it is: %.2f us\n", plain, changed, each(start, launches));
        must(tessera_synchronize(device));
    }

    tessera_prepared_close(prepared);
    tessera_device_close(device);
    tessera_close(bundle);
    return mistakes != 0;
}
