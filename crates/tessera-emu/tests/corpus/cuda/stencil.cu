// A 3 x 3 stencil whose weights are constants, and Conway's game of life on bytes.

__constant__ float weights[9] = {0.0625f, 0.125f, 0.0625f, 0.125f, 0.25f, 0.125f, 0.0625f, 0.125f, 0.0625f};

extern "C" __global__ void blur(const float* x, float* y, int width, int height) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= width || r >= height) return;
    float sum = 0.0f;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int cc = min(max(c + dx, 0), width - 1), rr = min(max(r + dy, 0), height - 1);
            sum += __ldg(&x[rr * width + cc]) * weights[(dy + 1) * 3 + dx + 1];
        }
    y[r * width + c] = sum;
}

__device__ unsigned generation = 7;

extern "C" __global__ void life(const unsigned char* x, unsigned char* y, int width, int height, unsigned* seen) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (c >= width || r >= height) return;
    int around = 0;
    for (int d = 0; d < 9; d++)
        if (d != 4) around += x[(r + d / 3 + height - 1) % height * width + (c + d % 3 + width - 1) % width];
    y[r * width + c] = around == 3 || (around == 2 && x[r * width + c]);
    if (c == 0 && r == 0) *seen = generation++;
}
