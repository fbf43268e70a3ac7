//! The ring of a product by warpgroups: one producer, two consumers, six slots.

use super::kernels::Kernel::Ring;
use super::table::Caught::{Gate, Report};
use super::table::{Mutant, mutant};
use tessera_emu::FindingKind::{Barrier, Deadlock, InFlight, Mbarrier, OutOfBounds, ProxyFence, Race, Uninitialized};

const PRODUCER_WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p8, [%r40+196656], %r39;";
const CONSUMER_WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p14, [%r115+196608], %r114;";
const EXPECT: &str = "[%r40+196608], 32768;";
const RELEASE: &str = "@%p13 mbarrier.arrive.shared::cta.b64 _, [%r115+196656];";
const EARLY_RELEASE: &str = "wgmma.commit_group.sync.aligned; @%p13 mbarrier.arrive.shared::cta.b64 _, [%r115+196656];";

pub(crate) const MUTANTS: &[Mutant] = &[
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
    mutant(Ring, "the producer does not repeat its wait", &[("@!%p8 bra L11;", 0, "")], Report(&[Race, Mbarrier, Uninitialized])),
    mutant(Ring, "the consumer does not wait for the data", &[(CONSUMER_WAIT, 0, "mov.pred %p14, 1;")], Report(&[Race])),
    mutant(
        Ring,
        "the consumer does not repeat its wait",
        &[("@!%p14 bra L22;", 0, "")],
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
    mutant(Ring, "a barrier for too many threads", &[("bar.sync 0;", 0, "bar.sync 0, 416;")], Report(&[Barrier, Deadlock])),
    mutant(
        Ring,
        "the result's last columns are stored without their bound: into the next rows",
        &[("@%p115 st.global.b32 [%d17+240], %r482;", 0, "st.global.b32 [%d17+240], %r482;")],
        Report(&[Race, OutOfBounds]),
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
];
