/* Launches a matrix product from a bundle and checks it: `product BUNDLE [DEVICE]`. docs/bundles.md says how it is built. */
#include <stdio.h>
#include <stdlib.h>

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

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: product BUNDLE [DEVICE]\n");
        return 1;
    }
    tessera_bundle *bundle;
    tessera_device *device;
    must(tessera_open(arguments[1], &bundle));
    must(tessera_device_open(count > 2 ? arguments[2] : "cuda", &device));

    /* Small whole numbers: the product is exact, in whatever order it is summed. */
    static float a[M][K], b[K][N], c[M][N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) a[i][k] = (float)((i + 2 * k) % 7 - 3);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) b[k][j] = (float)((3 * k + j) % 5 - 2);

    const int64_t shape_a[] = {M, K}, shape_b[] = {K, N}, shape_c[] = {M, N};
    tessera_tensor A = tensor(device, shape_a, a[0]), B = tensor(device, shape_b, b[0]), C = tensor(device, shape_c, NULL);
    const tessera_argument operands[] = {
        {.name = "A", .kind = TESSERA_TENSOR, .value.tensor = &A},
        {.name = "B", .kind = TESSERA_TENSOR, .value.tensor = &B},
        {.name = "C", .kind = TESSERA_TENSOR, .value.tensor = &C},
    };
    must(tessera_launch(bundle, "product", device, NULL, NULL, operands, 3));
    must(tessera_synchronize(device));
    must(tessera_copy_from(device, c, C.data, sizeof c));

    int wrong = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[i][k] * b[k][j];
            wrong += c[i][j] != sum;
        }
    printf("%d x %d x %d on %s: %d of %d elements are wrong\n", M, N, K, count > 2 ? arguments[2] : "cuda", wrong, M * N);

    tessera_device_close(device);
    tessera_close(bundle);
    return wrong != 0;
}
