// Programmatic dependent launch: the next grid may start early and waits before it reads.

extern "C" __global__ void follow(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cudaGridDependencySynchronize();
    if (i < n) y[i] = x[i] * 3 + 1;
    cudaTriggerProgrammaticLaunchCompletion();
}
