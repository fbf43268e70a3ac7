// Threads that go their own ways: escape times, a sparse product, walks through a tree, early exits.

extern "C" __global__ void escape(int* out, int width, int height, int most) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= width || r >= height) return;
    // Fixed point, so that any machine agrees.
    int cr = c * 12288 / width - 8192, ci = r * 8192 / height - 4096, zr = 0, zi = 0, n = 0;
    while (n < most && zr * zr + zi * zi < 4 * 4096 * 4096) {
        int t = (zr * zr - zi * zi) / 4096 + cr;
        zi = 2 * zr * zi / 4096 + ci;
        zr = t;
        n++;
    }
    out[r * width + c] = n;
}

extern "C" __global__ void sparse(const int* starts, const int* columns, const float* values, const float* x, float* y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) sum += values[i] * x[columns[i]];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane == 0) y[row] = sum;
}

// The number of steps that each number takes to 1, with a cut that some threads reach early.
extern "C" __global__ void collatz(const unsigned* x, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = x[i];
    for (unsigned steps = 0;; steps++) {
        if (v == 1) { out[i] = steps; return; }
        if (steps > 200) break;
        if (v & 1) v = 3 * v + 1;
        else if (v & 2) v >>= 1;
        else { v >>= 2; steps++; }
    }
    out[i] = 0xffffffffu;
}

// Lanes take a lock one after the other: each needs the lanes before it to leave.
extern "C" __global__ void locked(int* lock, int* count) {
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int*)count = *(volatile int*)count + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
