// Sorting: bitonic in shared memory, insertion in local memory, and a rank by counting.

extern "C" __global__ void bitonic(int* x) {
    extern __shared__ int keys[];
    int t = threadIdx.x;
    keys[t] = x[blockIdx.x * blockDim.x + t];
    for (int size = 2; size <= blockDim.x; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int other = t ^ stride;
            if (other > t) {
                bool up = (t & size) == 0;
                int a = keys[t], b = keys[other];
                if ((a > b) == up) {
                    keys[t] = b;
                    keys[other] = a;
                }
            }
        }
    __syncthreads();
    x[blockIdx.x * blockDim.x + t] = keys[t];
}

// Each thread sorts 24 numbers of its own; where a number goes depends on the data.
extern "C" __global__ void insertion(const short* x, short* y, int n) {
    short own[24];
    int i = blockIdx.x * blockDim.x + threadIdx.x, have = 0;
    if (i >= n) return;
    for (int k = 0; k < 24; k++) {
        short v = x[k * n + i];
        int at = have++;
        while (at > 0 && own[at - 1] > v) {
            own[at] = own[at - 1];
            at--;
        }
        own[at] = v;
    }
    for (int k = 0; k < 24; k++) y[k * n + i] = own[k];
}
