"""Rarer forms of PTX against their written-out meaning. Usage: ptx_forms.py TESSERA FOLDER [GROUP...], or ptx_forms.py cuda FOLDER [GROUP...]

A group is a kernel: each thread loads its words, runs instructions and stores their results. `ptx_forms_*.py` hold the groups, each with a
function that computes the results from the words in Python integers and NumPy, written after the PTX ISA's own semantics. TESSERA runs
them on the emulator (`tessera emu`), `cuda` on a GPU through its driver, so that the meaning itself is checked. What was found is left in FOLDER.
"""
import ctypes
import os
import struct
import subprocess
import sys

import numpy as np

import ptx_forms_arithmetic
import ptx_forms_matrix

HEAD = """.version 8.7
.target {target}
.address_size 64
{variables}
.visible .entry k(.param .u64 inputs, .param .u64 outputs)
{{
    .reg .pred %p<16>; .reg .b8 %c<16>; .reg .b16 %h<64>; .reg .b32 %r<128>; .reg .b64 %d<64>; .reg .f32 %f<64>; .reg .f64 %g<32>;
    .reg .b128 %q<8>; .reg .b32 %i<{inputs}>, %o<{outputs}>, %lane, %thread; .reg .b64 %in, %out;
    ld.param.u64 %in, [inputs];
    ld.param.u64 %out, [outputs];
    mov.u32 %thread, %tid.x;
    mov.u32 %lane, %laneid;
    mad.wide.u32 %in, %thread, {input_bytes}, %in;
    mad.wide.u32 %out, %thread, {output_bytes}, %out;
"""


class Group:
    """A kernel: `words` are the threads' inputs, a row of 32-bit words a thread; `body` leaves its results in %o0 and on."""

    def __init__(self, name, body, words, results, reference, variables="", target="sm_90a", same=None):
        self.name, self.body, self.words, self.results = name, body, np.ascontiguousarray(words, np.uint32), results
        self.reference, self.variables, self.target = reference, variables, target
        # Whether two results are the same: bits, unless the group says otherwise.
        self.same = same or (lambda found, wanted: found == wanted)

    def ptx(self):
        inputs = self.words.shape[1]
        text = HEAD.format(target=self.target, variables=self.variables, inputs=max(inputs, 1), outputs=self.results,
                           input_bytes=4 * inputs, output_bytes=4 * self.results)
        text += "".join(f"    ld.global.b32 %i{i}, [%in+{4 * i}];\n" for i in range(inputs)) + self.body
        return text + "".join(f"    st.global.b32 [%out+{4 * i}], %o{i};\n" for i in range(self.results)) + "    ret;\n}\n"


def emulated(tessera, folder, group):
    base = os.path.join(folder, group.name)
    with open(base + ".ptx", "w") as file:
        file.write(group.ptx())
    np.save(base + "_in.npy", group.words)
    threads = len(group.words)
    command = [tessera, "emu", base + ".ptx", "--entry", "k", "--grid", "1", "--block", str(threads), "--sanitize", "all",
               f"inputs=@{base}_in.npy", f"outputs=empty:u32[{threads},{group.results}]", "--save", f"outputs={base}_out.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return np.load(base + "_out.npy").view(np.uint32)


class Gpu:
    """The driver of the first GPU."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value}")

    def run(self, group):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        log = ctypes.create_string_buffer(1 << 16)
        options = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), len(log))
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), group.ptx().encode() + b"\0", 2, options, values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.value.decode()}")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        out = np.zeros((len(group.words), group.results), np.uint32)
        sizes = (max(group.words.nbytes, 4), out.nbytes)
        memory = [ctypes.c_uint64() for _ in sizes]
        for pointer, size in zip(memory, sizes):
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.call("cuMemcpyHtoD_v2", memory[0], group.words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(group.words.nbytes))
        parameters = (ctypes.c_void_p * 2)(*[ctypes.cast(ctypes.pointer(pointer), ctypes.c_void_p) for pointer in memory])
        self.call("cuLaunchKernel", function, 1, 1, 1, len(group.words), 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), memory[1], ctypes.c_size_t(out.nbytes))
        for pointer in memory:
            self.call("cuMemFree_v2", pointer)
        self.call("cuModuleUnload", module)
        return out


def main():
    where, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.makedirs(folder, exist_ok=True)
    gpu = Gpu() if where == "cuda" else None
    groups = ptx_forms_arithmetic.groups(Group) + ptx_forms_matrix.groups(Group)
    groups = [group for group in groups if not names or any(name in group.name for name in names)]
    failed = results = 0
    for group in groups:
        try:
            found = gpu.run(group) if gpu else emulated(where, folder, group)
            np.save(os.path.join(folder, group.name + "_found.npy"), found)
        except RuntimeError as error:
            print(f"{group.name}: {error}")
            failed += 1
            continue
        wanted = group.reference(group.words).astype(np.uint32)
        results += wanted.size
        wrong = np.argwhere(~group.same(found, wanted))
        if len(wrong):
            failed += 1
            lines = [line.strip() for line in group.body.splitlines()]
            columns = sorted({int(column) for _, column in wrong})
            print(f"{group.name}: {len(wrong)} of {wanted.size} results differ, outputs {columns[:20]}")
            for thread, column in wrong[:8]:
                about = next((line for line in lines if f"%o{column}," in line or f"%o{column}." in line), "")
                words = " ".join(f"{word:08x}" for word in group.words[thread][:12])
                print(f"  thread {thread}: %o{column} is {found[thread, column]:08x}, wanted {wanted[thread, column]:08x}; {about} of {words}")
    print(f"{len(groups)} groups, {results} results, {failed} failed")
    if failed:
        sys.exit(1)
    print("the forms of PTX agree with their meaning")


if __name__ == "__main__":
    main()
