// Functions that stay functions: structures by value, arrays in local memory, recursion, pointers to functions, virtual
// functions, and switches with jump tables.

struct Pair { int low, high; double weight; };

__noinline__ __device__ Pair ordered(Pair p) {
    if (p.low > p.high) { int t = p.low; p.low = p.high; p.high = t; }
    p.weight *= 0.5;
    return p;
}

extern "C" __global__ void by_value(const int* x, int* out, double* weights) {
    int i = threadIdx.x;
    Pair p = ordered({x[2 * i], x[2 * i + 1], (double)i});
    out[2 * i] = p.low;
    out[2 * i + 1] = p.high;
    weights[i] = p.weight;
}

__noinline__ __device__ unsigned long long fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__noinline__ __device__ bool odd(int n);
__noinline__ __device__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
__noinline__ __device__ bool odd(int n) { return n == 0 ? false : even(n - 1); }

extern "C" __global__ void recursive(unsigned long long* out) {
    int i = threadIdx.x;
    out[i] = fibonacci(i % 13) * 2 + even(i);
}

// Each level has memory of its own, which the level below writes to through a pointer.
__noinline__ __device__ int levels(int depth, int* above) {
    int own[4];
    for (int i = 0; i < 4; i++) own[i] = depth * 10 + i;
    if (depth > 0) levels(depth - 1, own);
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += own[i];
    above[depth % 4] += sum;
    return sum;
}

extern "C" __global__ void nested_arrays(int* out) {
    int own[4] = {1, 2, 3, 4};
    levels(threadIdx.x % 6, own);
    int sum = 0;
    for (int i = 0; i < 4; i++) sum = sum * 3 + own[i];
    out[threadIdx.x] = sum;
}

__noinline__ __device__ int plus(int a, int b) { return a + b; }
__noinline__ __device__ int minus(int a, int b) { return a - b; }
__noinline__ __device__ int times(int a, int b) { return a * b; }
__noinline__ __device__ int scaled(int a, int b) { return fibonacci(a & 7) * b; }
typedef int (*Operation)(int, int);
__device__ Operation table[4] = {plus, minus, times, scaled};

extern "C" __global__ void by_pointer(const int* a, const int* b, int* out) {
    int i = threadIdx.x;
    out[i] = table[(a[i] ^ b[i]) & 3](a[i], b[i]);
}

struct Shape {
    int size;
    __device__ explicit Shape(int s) : size(s) {}
    __device__ virtual int area() const = 0;
    __device__ virtual int scaled(int by) const { return area() * by; }
};
struct Square : Shape {
    __device__ explicit Square(int s) : Shape(s) {}
    __device__ int area() const override { return size * size; }
};
struct Line : Shape {
    __device__ explicit Line(int s) : Shape(s) {}
    __device__ int area() const override { return 0; }
    __device__ int scaled(int by) const override { return size + by; }
};

__noinline__ __device__ int ask(const Shape* shape, int by) { return shape->scaled(by) + shape->area(); }

extern "C" __global__ void by_virtual(int* out) {
    Square square(threadIdx.x);
    Line line(threadIdx.x);
    out[threadIdx.x] = ask(threadIdx.x % 3 ? (const Shape*)&square : (const Shape*)&line, 7);
}

extern "C" __global__ void by_switch(const int* x, int* out) {
    int i = threadIdx.x, v = x[i], r;
    switch (v & 15) {
        case 0: r = v * 3; break;
        case 1: r = v ^ 0x55; break;
        case 2: r = __popc(v); break;
        case 3: r = v / 7; break;
        case 4: r = v - out[i]; break;
        case 5: r = __clz(v); break;
        case 6: r = v % 11; break;
        case 7: r = ~v; break;
        case 8: r = __brev(v); break;
        case 9: r = v << 3; // goes on
        case 10: r = v >> 2; break;
        case 11: r = v * v; break;
        default: r = -1;
    }
    out[i] = r;
}
