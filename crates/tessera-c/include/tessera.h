/* Launches kernels that Tessera compiled beforehand. A bundle (`tessera bundle ... -o kernels.tbundle`) holds compiled kernels; no compiler
 * and no assembler is needed to launch them.
 *
 *     tessera_bundle *bundle;
 *     tessera_device *device;
 *     if (tessera_open("kernels.tbundle", &bundle) || tessera_device_open("cuda", &device)) puts(tessera_last_error());
 *
 * Functions may be called from any thread. One that gives a status fails with one that is not TESSERA_OK; `tessera_last_error` then says
 * why. A handle is closed once, when no thread uses it any more. */
#ifndef TESSERA_H
#define TESSERA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open bundle, an open device, a launch that was checked and packed beforehand. */
typedef struct tessera_bundle tessera_bundle;
typedef struct tessera_device tessera_device;
typedef struct tessera_prepared tessera_prepared;

/* What became of a call. */
typedef int32_t tessera_status;
enum {
    TESSERA_OK = 0,
    TESSERA_INVALID_CALL = 1,    /* a null pointer, text that is not UTF-8, memory that is not the device's */
    TESSERA_NO_FILE = 2,         /* a file cannot be read */
    TESSERA_BAD_BUNDLE = 3,      /* no bundle, or one that is cut off or damaged */
    TESSERA_OTHER_VERSION = 4,   /* a bundle of another version than this library reads */
    TESSERA_NO_KERNEL = 5,       /* the bundle has no kernel of that name */
    TESSERA_WRONG_TARGET = 6,    /* the kernel is not there for this device */
    TESSERA_WRONG_ARGUMENTS = 7, /* the kernel's only variant for this device does not take the arguments */
    TESSERA_NO_VARIANT = 8,      /* none of the kernel's variants takes the arguments; the message lists them */
    TESSERA_NO_DEVICE = 9,       /* there is no such device, or no driver */
    TESSERA_OUT_OF_MEMORY = 10,  /* the device has not so much memory */
    TESSERA_DEVICE_FAILED = 11,  /* the device refused the kernel, or the kernel failed */
    TESSERA_INTERNAL = 12        /* a mistake of this library */
};

/* An array on the device, with the layout of DLPack's DLTensor. `code` is DLPack's: 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool,
 * 10 f8e4m3, 12 f8e5m2, 14 e8m0, 15 f6e2m3, 16 f6e3m2, 17 f4e2m1. */
typedef struct tessera_tensor {
    void *data;
    int32_t device_type; /* 0 where nobody says; 2, 3 and 13 are CUDA's */
    int32_t device_id;   /* not looked at */
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;         /* 1 */
    const int64_t *shape;   /* elements along each axis */
    const int64_t *strides; /* elements from one to its neighbour; NULL for row-major arrays */
    uint64_t byte_offset;
} tessera_tensor;

/* Which member of an argument's value counts. */
enum {
    TESSERA_TENSOR = 0,
    TESSERA_INTEGER = 1, /* also a truth value, as 0 or 1 */
    TESSERA_REAL = 2,
    TESSERA_TEXT = 3, /* of a constant: a string, or the name of an element type */
    TESSERA_LIST = 4, /* `items`, tensors of one type and rank */
    TESSERA_TUPLE = 5 /* `items` of any kind, tuples among them */
};

struct tessera_argument;

/* What a list or a tuple holds; names are not looked at. An item of a tuple may also be given by a name of its own: "xs.0", "xs.1". */
typedef struct tessera_items {
    const struct tessera_argument *values;
    size_t count;
} tessera_items;

/* An argument, by the name that the kernel gives its parameter. */
typedef struct tessera_argument {
    const char *name;
    int32_t kind;
    union {
        const tessera_tensor *tensor;
        int64_t integer;
        double real;
        const char *text;
        const tessera_items *items;
    } value;
} tessera_argument;

/* The library's version, such as "0.1.0". */
const char *tessera_version(void);

/* What the calling thread's last call that failed said; it stays until the next one. */
const char *tessera_last_error(void);

/* Opens a bundle: a file, or bytes in memory, which are not needed afterwards. Every byte is checked. */
tessera_status tessera_open(const char *path, tessera_bundle **bundle);
tessera_status tessera_open_memory(const uint8_t *bytes, size_t size, tessera_bundle **bundle);

/* Closes a bundle. NULL is nothing to close. */
void tessera_close(tessera_bundle *bundle);

/* How many variants a bundle has, and each in words (NULL where there is none; the text lives as long as the bundle). */
size_t tessera_variant_count(const tessera_bundle *bundle);
const char *tessera_variant_describe(const tessera_bundle *bundle, size_t position);

/* Opens a device: "cuda", "cuda:1"; of a library with the emulator also "emu", or "emu:a100" for another product. */
tessera_status tessera_device_open(const char *name, tessera_device **device);

/* Waits until the device is done, and closes it, with memory that was not freed. NULL is nothing to close. */
void tessera_device_close(tessera_device *device);

/* Memory of the device, with undefined contents. */
tessera_status tessera_alloc(const tessera_device *device, size_t bytes, void **memory);
tessera_status tessera_free(const tessera_device *device, void *memory);

/* Copies to and from the device in the order of its own stream, and returns when that is done. */
tessera_status tessera_copy_to(const tessera_device *device, void *to, const void *from, size_t bytes);
tessera_status tessera_copy_from(const tessera_device *device, void *to, const void *from, size_t bytes);

/* Launches a kernel and does not wait for it. `stream` is a CUstream of the device's primary context, or NULL for the device's own.
 * `grid` has the blocks along x, y and z; NULL where the bundle knows how many are needed. Constants may be left out where all variants
 * that take the other arguments have the same. The arguments are not needed afterwards; the arrays' memory is, until the launch is
 * done. Launches on other streams than the device's own are ordered with copies by `tessera_synchronize`. A kernel that needs workspace
 * takes it at each launch and gives it back at `tessera_synchronize`; the 256th such launch since then waits for all. */
tessera_status tessera_launch(const tessera_bundle *bundle, const char *kernel, const tessera_device *device, void *stream,
                              const uint32_t *grid, const tessera_argument *arguments, size_t count);

/* Checks and packs a launch, as `tessera_launch` takes it, to be queued as often as it is wanted. */
tessera_status tessera_prepare(const tessera_bundle *bundle, const char *kernel, const tessera_device *device, const uint32_t *grid,
                               const tessera_argument *arguments, size_t count, tessera_prepared **prepared);

/* Queues a prepared launch, in the order of a stream as `tessera_launch` does, or into the graph that the stream records. `changes` are
 * arguments that differ from the prepared ones this time: numbers, and arrays of the same type, shape and strides elsewhere in memory; a
 * list stays as it was prepared. Several threads may launch at once. A kernel that needs workspace has one for all launches of the
 * handle: in several streams they are the caller's to order. */
tessera_status tessera_prepared_launch(const tessera_prepared *prepared, void *stream, const tessera_argument *changes, size_t count);

/* Closes a prepared launch; those under way go on, graphs that recorded one are not launched any more. NULL is nothing to close. A
 * device is closed after what was prepared for it. */
void tessera_prepared_close(tessera_prepared *prepared);

/* Waits until everything on the device is done, in all streams. Tells of kernels that failed. */
tessera_status tessera_synchronize(const tessera_device *device);

#ifdef __cplusplus
}
#endif

#endif
