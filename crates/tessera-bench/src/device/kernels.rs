//! The harness's own device code: small kernels as PTX that every device since sm_70 takes.

use tessera_driver::{Context, DevicePtr, Dim3, Kernel, Params, Result, Stream};

/// Threads of a block of the streaming kernels, and bytes that a block moves.
const THREADS: u32 = 256;
const BLOCK_BYTES: u64 = 256 * 64;

const TEXT: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry tessera_empty()
{
    ret;
}

// Each thread reads four vectors of 16 bytes; the store never happens, as the host passes a word that the data does not give.
.visible .entry tessera_read(.param .u64 data, .param .u32 never)
{
    .reg .pred %p;
    .reg .b32 %r<18>, %a, %n;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [data];
    ld.param.u32 %n, [never];
    mov.u32 %r16, %ctaid.x;
    mov.u32 %r17, %tid.x;
    mul.wide.u32 %d1, %r16, 16384;
    mul.wide.u32 %d2, %r17, 16;
    add.u64 %d0, %d0, %d1;
    add.u64 %d0, %d0, %d2;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d0];
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d0+4096];
    ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d0+8192];
    ld.global.v4.b32 {%r12, %r13, %r14, %r15}, [%d0+12288];
    xor.b32 %a, %r0, %r1;
    xor.b32 %a, %a, %r2;
    xor.b32 %a, %a, %r3;
    xor.b32 %a, %a, %r4;
    xor.b32 %a, %a, %r5;
    xor.b32 %a, %a, %r6;
    xor.b32 %a, %a, %r7;
    xor.b32 %a, %a, %r8;
    xor.b32 %a, %a, %r9;
    xor.b32 %a, %a, %r10;
    xor.b32 %a, %a, %r11;
    xor.b32 %a, %a, %r12;
    xor.b32 %a, %a, %r13;
    xor.b32 %a, %a, %r14;
    xor.b32 %a, %a, %r15;
    setp.eq.u32 %p, %a, %n;
    @%p st.global.b32 [%d0], %a;
    ret;
}

.visible .entry tessera_copy(.param .u64 from, .param .u64 to)
{
    .reg .b32 %r<18>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [from];
    ld.param.u64 %d1, [to];
    mov.u32 %r16, %ctaid.x;
    mov.u32 %r17, %tid.x;
    mul.wide.u32 %d2, %r16, 16384;
    mul.wide.u32 %d3, %r17, 16;
    add.u64 %d2, %d2, %d3;
    add.u64 %d0, %d0, %d2;
    add.u64 %d1, %d1, %d2;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d0];
    ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d0+4096];
    ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d0+8192];
    ld.global.v4.b32 {%r12, %r13, %r14, %r15}, [%d0+12288];
    st.global.v4.b32 [%d1], {%r0, %r1, %r2, %r3};
    st.global.v4.b32 [%d1+4096], {%r4, %r5, %r6, %r7};
    st.global.v4.b32 [%d1+8192], {%r8, %r9, %r10, %r11};
    st.global.v4.b32 [%d1+12288], {%r12, %r13, %r14, %r15};
    ret;
}

// One thread's clock, the global timer and the multiprocessor they were read on.
.visible .entry tessera_clock(.param .u64 out)
{
    .reg .b32 %r0;
    .reg .b64 %d<5>;
    ld.param.u64 %d0, [out];
    mov.u64 %d1, %clock64;
    mov.u64 %d2, %globaltimer;
    mov.u32 %r0, %smid;
    cvt.u64.u32 %d3, %r0;
    st.global.u64 [%d0], %d1;
    st.global.u64 [%d0+8], %d2;
    st.global.u64 [%d0+16], %d3;
    ret;
}

// Adds to `out` a mixture of each 32-bit word and its position: the sum does not depend on the order of threads.
.visible .entry tessera_digest(.param .u64 data, .param .u64 words, .param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %d<10>;
    ld.param.u64 %d0, [data];
    ld.param.u64 %d1, [words];
    ld.param.u64 %d2, [out];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r0, %r1;
    cvt.u64.u32 %d4, %r2;
    add.u64 %d3, %d3, %d4;
    mov.u32 %r0, %nctaid.x;
    mul.wide.u32 %d4, %r0, %r1;
    mov.u64 %d5, 0;
NEXT:
    setp.ge.u64 %p, %d3, %d1;
    @%p bra DONE;
    shl.b64 %d6, %d3, 2;
    add.u64 %d6, %d0, %d6;
    ld.global.u32 %r3, [%d6];
    cvt.u64.u32 %d7, %r3;
    mul.lo.u64 %d8, %d3, 0x9e3779b97f4a7c15;
    xor.b64 %d7, %d7, %d8;
    shr.u64 %d8, %d7, 31;
    xor.b64 %d7, %d7, %d8;
    mul.lo.u64 %d7, %d7, 0xbf58476d1ce4e5b9;
    shr.u64 %d8, %d7, 29;
    xor.b64 %d7, %d7, %d8;
    add.u64 %d5, %d5, %d7;
    add.u64 %d3, %d3, %d4;
    bra NEXT;
DONE:
    red.global.add.u64 [%d2], %d5;
    ret;
}
";

/// The harness's kernels, loaded.
#[derive(Clone, Debug)]
pub(crate) struct Kernels {
    empty: Kernel,
    read: Kernel,
    copy: Kernel,
    clock: Kernel,
    digest: Kernel,
}

/// Bytes that the streaming kernels move in whole blocks.
pub(crate) fn whole_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

impl Kernels {
    pub(crate) fn load(context: &Context) -> Result<Kernels> {
        let module = context.module(TEXT.as_bytes())?;
        Ok(Kernels {
            empty: module.kernel("tessera_empty")?,
            read: module.kernel("tessera_read")?,
            copy: module.kernel("tessera_copy")?,
            clock: module.kernel("tessera_clock")?,
            digest: module.kernel("tessera_digest")?,
        })
    }

    pub(crate) fn empty(&self, stream: &Stream) -> Result<()> {
        self.empty.launch(stream, Dim3::ONE, Dim3::from(32), 0, &Params::new())
    }

    /// Reads `bytes` bytes, a multiple of [`whole_blocks`]. The data's words must not mix to `0x5bd1e995` in any thread.
    pub(crate) fn read(&self, stream: &Stream, from: DevicePtr, bytes: u64) -> Result<()> {
        let params = Params::new().pointer(from).u32(0x5bd1_e995);
        self.read.launch(stream, Dim3::from((bytes / BLOCK_BYTES) as u32), Dim3::from(THREADS), 0, &params)
    }

    /// Copies `bytes` bytes, a multiple of [`whole_blocks`].
    pub(crate) fn copy(&self, stream: &Stream, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<()> {
        let params = Params::new().pointer(from).pointer(to);
        self.copy.launch(stream, Dim3::from((bytes / BLOCK_BYTES) as u32), Dim3::from(THREADS), 0, &params)
    }

    /// Writes cycles, nanoseconds and the multiprocessor's number, 64 bits each.
    pub(crate) fn clock(&self, stream: &Stream, out: DevicePtr) -> Result<()> {
        self.clock.launch(stream, Dim3::ONE, Dim3::ONE, 0, &Params::new().pointer(out))
    }

    /// Adds the digest of 32-bit words to the 64-bit word at `out`.
    pub(crate) fn digest(&self, stream: &Stream, data: DevicePtr, words: u64, out: DevicePtr) -> Result<()> {
        const MOST_BLOCKS: u64 = 1056;
        let blocks = words.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS) as u32;
        let params = Params::new().pointer(data).u64(words).pointer(out);
        self.digest.launch(stream, Dim3::from(blocks), Dim3::from(THREADS), 0, &params)
    }
}
