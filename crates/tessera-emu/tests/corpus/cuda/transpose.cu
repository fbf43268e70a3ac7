// Transposes through shared memory: elements of 1 to 8 bytes.

template <typename T> __device__ void transposed(const T* x, T* y, int rows, int cols) {
    __shared__ T tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (r + i < rows && c < cols) tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * cols + c];
    __syncthreads();
    int oc = blockIdx.y * 32 + threadIdx.x, orow = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (orow + i < cols && oc < rows) y[(orow + i) * rows + oc] = tile[threadIdx.x][threadIdx.y + i];
}

extern "C" __global__ void transpose_8(const char* x, char* y, int rows, int cols) { transposed(x, y, rows, cols); }
extern "C" __global__ void transpose_16(const short* x, short* y, int rows, int cols) { transposed(x, y, rows, cols); }
extern "C" __global__ void transpose_32(const float* x, float* y, int rows, int cols) { transposed(x, y, rows, cols); }
extern "C" __global__ void transpose_64(const double* x, double* y, int rows, int cols) { transposed(x, y, rows, cols); }
