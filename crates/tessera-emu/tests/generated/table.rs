//! What is planted, and how it shows.

use tessera_emu::FindingKind;
use tessera_emu::FindingKind::{
    Barrier, Deadlock, DivergentBarrier, InFlight, Mbarrier, Misaligned, OutOfBounds, ProxyFence, Race, Uninitialized, WarpMask,
};

use crate::kernels::Kernel;
use crate::kernels::Kernel::{Ring, Rows, Sum, Warps};

/// A mistake.
pub(crate) struct Mutant {
    pub(crate) kernel: Kernel,
    pub(crate) what: &'static str,
    /// In order: the n-th occurrence of a text becomes another one.
    pub(crate) edits: &'static [(&'static str, usize, &'static str)],
    pub(crate) caught: Caught,
}

/// How a mutant shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caught {
    /// By one of these findings.
    Report(&'static [FindingKind]),
    /// By a wrong result, without any finding.
    Gate,
}

use Caught::{Gate, Report};

const fn mutant(
    kernel: Kernel,
    what: &'static str,
    edits: &'static [(&'static str, usize, &'static str)],
    caught: Caught,
) -> Mutant {
    Mutant { kernel, what, edits, caught }
}

const PRODUCER_WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p8, [%r40+196656], %r39;";
const CONSUMER_WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p14, [%r115+196608], %r114;";
const EXPECT: &str = "[%r40+196608], 32768;";
const RELEASE: &str = "@%p13 mbarrier.arrive.shared::cta.b64 _, [%r115+196656];";
const EARLY_RELEASE: &str = "wgmma.commit_group.sync.aligned; @%p13 mbarrier.arrive.shared::cta.b64 _, [%r115+196656];";

pub(crate) const MUTANTS: &[Mutant] = &[
    // The ring of a product by warpgroups.
    mutant(
        Ring,
        "no fence behind the barriers' initialisation",
        &[("fence.mbarrier_init.release.cluster;", 0, "")],
        Report(&[ProxyFence]),
    ),
    mutant(Ring, "no barrier behind the initialisation", &[("bar.sync 0;", 0, "")], Report(&[Race])),
    mutant(Ring, "too few bytes expected", &[(EXPECT, 0, "[%r40+196608], 32752;")], Report(&[Deadlock])),
    mutant(Ring, "too many bytes expected", &[(EXPECT, 0, "[%r40+196608], 49152;")], Report(&[Deadlock])),
    mutant(Ring, "the bytes of one operand expected", &[(EXPECT, 0, "[%r40+196608], 16384;")], Report(&[Race])),
    mutant(
        Ring,
        "no bytes expected",
        &[(
            "@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r40+196608], 32768;",
            0,
            "@%p5 mbarrier.arrive.shared::cta.b64 _, [%r40+196608];",
        )],
        Report(&[Race, Uninitialized, Deadlock]),
    ),
    mutant(
        Ring,
        "the producer starts in the wrong phase",
        &[("xor.b32 %r39, %r38, 1;", 0, "mov.b32 %r39, %r38;")],
        Report(&[Deadlock]),
    ),
    mutant(Ring, "the producer's phase does not flip", &[("selp.b32 %r38, %r39, %r38, %p9;", 0, "")], Report(&[Deadlock])),
    mutant(Ring, "the consumer's phase does not flip", &[("selp.b32 %r114, %r133, %r114, %p15;", 0, "")], Report(&[Race])),
    mutant(Ring, "the consumer starts in the wrong phase", &[("mov.b32 %r114, 0;", 0, "mov.b32 %r114, 1;")], Report(&[Race])),
    mutant(Ring, "the producer does not wait for the slot", &[(PRODUCER_WAIT, 0, "mov.pred %p8, 1;")], Report(&[Race])),
    mutant(Ring, "the producer does not repeat its wait", &[("@!%p8 bra L9;", 0, "")], Report(&[Race, Mbarrier, Uninitialized])),
    mutant(Ring, "the consumer does not wait for the data", &[(CONSUMER_WAIT, 0, "mov.pred %p14, 1;")], Report(&[Race])),
    mutant(
        Ring,
        "the consumer does not repeat its wait",
        &[("@!%p14 bra L20;", 0, "")],
        Report(&[Race, Mbarrier, Uninitialized]),
    ),
    mutant(Ring, "no wgmma.fence", &[("wgmma.fence.sync.aligned;", 0, "")], Report(&[InFlight])),
    mutant(Ring, "no commit", &[("wgmma.commit_group.sync.aligned;", 0, "")], Report(&[InFlight, Race])),
    mutant(
        Ring,
        "the wait leaves a group",
        &[("wgmma.wait_group.sync.aligned 0;", 0, "wgmma.wait_group.sync.aligned 1;")],
        Report(&[InFlight, Race]),
    ),
    mutant(Ring, "no wait for the products", &[("wgmma.wait_group.sync.aligned 0;", 0, "")], Report(&[InFlight, Race])),
    mutant(
        Ring,
        "a slot is released before its products are done",
        &[("wgmma.commit_group.sync.aligned;", 0, EARLY_RELEASE), (RELEASE, 1, "")],
        Report(&[Race]),
    ),
    mutant(Ring, "a slot is never released", &[(RELEASE, 0, "")], Report(&[Deadlock])),
    mutant(Ring, "every lane releases", &[("@%p13 mbarrier.arrive", 0, "mbarrier.arrive")], Report(&[Mbarrier, Deadlock])),
    mutant(
        Ring,
        "the wrong barrier is released",
        &[(RELEASE, 0, "@%p13 mbarrier.arrive.shared::cta.b64 _, [%r115+196608];")],
        Report(&[Mbarrier, Deadlock]),
    ),
    mutant(
        Ring,
        "the slot counts the warps of one warpgroup",
        &[("[shared_memory+196656], 8;", 0, "[shared_memory+196656], 4;")],
        Report(&[Mbarrier, Race, Deadlock]),
    ),
    mutant(
        Ring,
        "a release too many: the slot counts nine warps",
        &[("[shared_memory+196656], 8;", 0, "[shared_memory+196656], 9;")],
        Report(&[Deadlock]),
    ),
    mutant(
        Ring,
        "the data's barrier counts two producers",
        &[("[shared_memory+196608], 1;", 0, "[shared_memory+196608], 2;")],
        Report(&[Deadlock]),
    ),
    mutant(
        Ring,
        "a barrier of the ring is not initialised",
        &[("mbarrier.init.shared::cta.b64 [shared_memory+196640], 1;", 0, "")],
        Report(&[Mbarrier]),
    ),
    mutant(
        Ring,
        "A always goes to the first slot",
        &[("mad.lo.u32 %r41, %r37, 16384, %r7;", 0, "mov.b32 %r41, %r7;")],
        Report(&[Race]),
    ),
    mutant(Ring, "B goes where A is", &[("[%r41+98304], [%d1,", 0, "[%r41], [%d1,")], Report(&[Race])),
    mutant(
        Ring,
        "the producer's ring is one slot short",
        &[("setp.eq.u32 %p9, %r43, 6;", 0, "setp.eq.u32 %p9, %r43, 5;")],
        Report(&[Deadlock, Race]),
    ),
    mutant(
        Ring,
        "the consumer's ring is one slot short",
        &[("setp.eq.u32 %p15, %r132, 6;", 0, "setp.eq.u32 %p15, %r132, 5;")],
        Report(&[Deadlock, Race]),
    ),
    mutant(
        Ring,
        "the producer loads one tile more than is used",
        &[("setp.lt.s32 %p10, %r36, %r31;", 0, "setp.le.s32 %p10, %r36, %r31;")],
        Report(&[InFlight]),
    ),
    mutant(
        Ring,
        "the consumer takes one tile more than is loaded",
        &[("setp.lt.s32 %p16, %r112, %r31;", 0, "setp.le.s32 %p16, %r112, %r31;")],
        Report(&[Deadlock]),
    ),
    mutant(
        Ring,
        "registers that the block has not",
        &[("setmaxnreg.inc.sync.aligned.u32 232;", 0, "setmaxnreg.inc.sync.aligned.u32 240;")],
        Report(&[Deadlock]),
    ),
    mutant(Ring, "the producer keeps its registers", &[("setmaxnreg.dec.sync.aligned.u32 40;", 0, "")], Report(&[Deadlock])),
    mutant(
        Ring,
        "a barrier of the consumers for too many threads",
        &[("bar.sync 2, 256;", 0, "bar.sync 2, 288;")],
        Report(&[Deadlock]),
    ),
    mutant(Ring, "an accumulator is not cleared", &[("mov.b32 %r45, 0;", 1, "")], Report(&[Uninitialized])),
    mutant(Ring, "a descriptor's stride", &[("mov.b32 %r8, 1073741888;", 0, "mov.b32 %r8, 1073741856;")], Gate),
    mutant(Ring, "a descriptor's swizzle", &[("mov.b32 %r8, 1073741888;", 0, "mov.b32 %r8, 2147483712;")], Gate),
    mutant(Ring, "one step along K twice", &[("add.u32 %r127, %r125, 2;", 0, "add.u32 %r127, %r125, 4;")], Gate),
    mutant(Ring, "the operands' buffers swapped", &[("shr.u32 %r119, %r117, 4;", 0, "shr.u32 %r119, %r116, 4;")], Gate),
    mutant(Ring, "B's tile of the wrong row", &[("[%d1, {%r42, %r35}]", 0, "[%d1, {%r42, %r34}]")], Gate),
    mutant(
        Ring,
        "both warpgroups multiply the same rows",
        &[("mad.lo.u32 %r122, %r118, 8192, %r116;", 0, "mov.b32 %r122, %r116;")],
        Gate,
    ),
    // A product by warps through shared memory.
    mutant(Warps, "no barrier between A and its fragments", &[("bar.sync 0;", 1, "")], Report(&[Race, Uninitialized])),
    mutant(Warps, "no barrier between B and its fragments", &[("bar.sync 0;", 3, "")], Report(&[Race, Uninitialized])),
    mutant(Warps, "no barrier before A of the next step", &[("bar.sync 0;", 0, "")], Report(&[Race])),
    mutant(Warps, "no barrier before B takes A's place", &[("bar.sync 0;", 2, "")], Report(&[Race])),
    mutant(Warps, "no barrier before the result takes their place", &[("bar.sync 0;", 4, "")], Report(&[Race])),
    mutant(Warps, "no barrier between the result and its rows", &[("bar.sync 0;", 5, "")], Report(&[Race, Uninitialized])),
    mutant(Warps, "a fragment of the wrong column", &[("[%r75+32];", 0, "[%r75+16];")], Gate),
    mutant(Warps, "B's fragments not transposed", &[(".x4.trans.shared", 0, ".x4.shared")], Gate),
    mutant(
        Warps,
        "fragments swapped",
        &[("{%r101, %r102, %r103, %r104}, {%r128, %r129}", 0, "{%r105, %r106, %r107, %r108}, {%r128, %r129}")],
        Gate,
    ),
    // Reductions over a block.
    mutant(
        Rows,
        "no barrier between the warps' results and their readers",
        &[("bar.sync 0;", 1, "")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(Rows, "no barrier before the scratch is used again", &[("bar.sync 0;", 2, "")], Report(&[Race])),
    mutant(Rows, "no barrier behind the second results", &[("bar.sync 0;", 3, "")], Report(&[Race])),
    mutant(
        Rows,
        "a warp's barrier in place of the block's",
        &[("bar.sync 0;", 1, "bar.warp.sync 4294967295;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Rows,
        "a barrier for three of four warps",
        &[("bar.sync 0;", 1, "bar.sync 0, 96;")],
        Report(&[Barrier, Deadlock, Race, Uninitialized]),
    ),
    mutant(
        Rows,
        "a barrier that some lanes pass by",
        &[("bar.sync 0;", 1, "@%p4 bar.sync 0;")],
        Report(&[DivergentBarrier, Deadlock]),
    ),
    mutant(
        Rows,
        "a neighbour behind the scratch",
        &[("sub.s32 %r43, 32, %r39;", 0, "sub.s32 %r43, 128, %r39;")],
        Report(&[OutOfBounds]),
    ),
    mutant(
        Rows,
        "a scratch of half words",
        &[("mad.lo.u32 %r38, %r0, 4, %r5;", 0, "mad.lo.u32 %r38, %r0, 2, %r5;")],
        Report(&[Misaligned]),
    ),
    mutant(
        Rows,
        "an exchange for half of the warp",
        &[("%r35, 16, 31, 4294967295;", 0, "%r35, 16, 31, 65535;")],
        Report(&[WarpMask]),
    ),
    mutant(
        Rows,
        "one step of the exchange missing",
        &[("shfl.sync.bfly.b32 %r36, %r35, 16,", 0, "shfl.sync.bfly.b32 %r36, %r35, 8,")],
        Gate,
    ),
    mutant(Sum, "no barrier between the warps' sums and their reader", &[("bar.sync 0;", 1, "")], Report(&[Race, Uninitialized])),
    mutant(
        Sum,
        "every thread writes the block's sum",
        &[("@%p9 st.global.b32 [%d4], %r72;", 0, "@%p8 st.global.b32 [%d4], %r72;")],
        Report(&[Race]),
    ),
    mutant(Sum, "a sum is not cleared", &[("mov.b32 %r24, 0;", 1, "")], Report(&[Uninitialized])),
    mutant(Sum, "a warp's sum counted twice", &[("sub.s32 %r61, 32, %r57;", 0, "sub.s32 %r61, 64, %r57;")], Gate),
];

pub(crate) const EQUIVALENT: &[(Mutant, &str)] = &[
    (
        mutant(Ring, "no bar.warp.sync before the release", &[("bar.warp.sync 4294967295;", 0, "")], Gate),
        "the `.aligned` wait before it is executed by all lanes together, and no lane touches memory between the two",
    ),
    (
        mutant(Ring, "another leading offset", &[("or.b32 %r125, %r124, 65536;", 0, "or.b32 %r125, %r124, 131072;")], Gate),
        "the leading offset of a K-major operand with a swizzle is not used (PTX ISA, \"Strides\" of wgmma: a K step lies in one swizzled row)",
    ),
    (
        mutant(Ring, "no barrier before the result is stored", &[("bar.sync 2, 256;", 0, "")], Gate),
        "behind it only registers and global memory are used, each element by one thread: there is nothing to order",
    ),
    (
        mutant(Rows, "no barrier before the first use of the scratch", &[("bar.sync 0;", 0, "")], Gate),
        "nobody has touched shared memory before it",
    ),
    (
        mutant(Sum, "no barrier before the only use of the scratch", &[("bar.sync 0;", 0, "")], Gate),
        "nobody has touched shared memory before it",
    ),
    (
        mutant(Warps, "no barrier at the end", &[("bar.sync 0;", 6, "")], Gate),
        "behind it only registers and global memory are used; shared memory is not touched again",
    ),
];
