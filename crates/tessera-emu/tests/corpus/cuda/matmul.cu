// C = A * B by tiles in shared memory: f32, and f64 with larger tiles a thread.

constexpr int TILE = 16;

extern "C" __global__ void matmul_f32(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float at[TILE][TILE], bt[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int from = 0; from < k; from += TILE) {
        int ka = from + threadIdx.x, kb = from + threadIdx.y;
        at[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        bt[threadIdx.y][threadIdx.x] = kb < k && col < n ? b[kb * n + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += at[threadIdx.y][i] * bt[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

// Each thread 2 x 2 results, two numbers a load; m, n and k are multiples of 32 and 8.
extern "C" __global__ void matmul_f64(const double* a, const double* b, double* c, int m, int n, int k) {
    __shared__ double2 at[32][4], bt[8][16];
    int t = threadIdx.x, r = t / 16 * 2, s = t % 16;
    double2 low = {0, 0}, high = {0, 0};
    for (int from = 0; from < k; from += 8) {
        if (t < 128) at[t / 4][t % 4] = *(const double2*)&a[(blockIdx.y * 32 + t / 4) * k + from + t % 4 * 2];
        else bt[(t - 128) / 16][t % 16] = *(const double2*)&b[(from + (t - 128) / 16) * n + blockIdx.x * 32 + t % 16 * 2];
        __syncthreads();
        for (int i = 0; i < 8; i++) {
            double x = i % 2 ? at[r][i / 2].y : at[r][i / 2].x, y = i % 2 ? at[r + 1][i / 2].y : at[r + 1][i / 2].x;
            double2 v = bt[i][s];
            low.x += x * v.x, low.y += x * v.y, high.x += y * v.x, high.y += y * v.y;
        }
        __syncthreads();
    }
    double2* out = (double2*)&c[(blockIdx.y * 32 + r) * n + blockIdx.x * 32 + s * 2];
    out[0] = low;
    out[n / 2] = high;
}
