// Clusters: blocks count into each other's shared memory, and read a neighbour's results.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

constexpr int BINS = 64;

// The cluster's blocks share the bins out; a count goes to the block that owns its bin.
extern "C" __global__ __cluster_dims__(4, 1, 1) void cluster_histogram(const unsigned* x, unsigned* bins, int n) {
    __shared__ unsigned own[BINS / 4];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < BINS / 4; i += blockDim.x) own[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned bin = x[i] % BINS;
        atomicAdd(cluster.map_shared_rank(&own[bin % (BINS / 4)], bin / (BINS / 4)), 1u);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < BINS / 4; i += blockDim.x) atomicAdd(&bins[cluster.block_rank() * (BINS / 4) + i], own[i]);
}

extern "C" __global__ __cluster_dims__(2, 2, 1) void rotate(const float* x, float* y) {
    extern __shared__ float tile[];
    cg::cluster_group cluster = cg::this_cluster();
    int block = blockIdx.y * gridDim.x + blockIdx.x, rank = cluster.block_rank();
    tile[threadIdx.x] = x[block * blockDim.x + threadIdx.x];
    cluster.sync();
    const float* other = cluster.map_shared_rank(tile, (rank + 1) % cluster.num_blocks());
    y[block * blockDim.x + threadIdx.x] = other[blockDim.x - 1 - threadIdx.x] + rank;
    cluster.sync();
}
