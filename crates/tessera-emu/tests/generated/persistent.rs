//! A product whose blocks take one tile after the other: the ring goes on from tile to tile.

use super::kernels::Kernel::Persistent;
use super::table::Caught::{Gate, Report};
use super::table::{Mutant, mutant};
use tessera_emu::FindingKind::{Deadlock, InFlight, Mbarrier, OutOfBounds, ProxyFence, Race, Uninitialized};

const RELEASE: &str = "@%p37 mbarrier.arrive.shared::cta.b64 _, [%r180+196656];";
const EARLY_RELEASE: &str = "wgmma.commit_group.sync.aligned; @%p37 mbarrier.arrive.shared::cta.b64 _, [%r180+196656];";

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        Persistent,
        "no fence behind the barriers' initialisation",
        &[("fence.mbarrier_init.release.cluster;", 0, "")],
        Report(&[ProxyFence]),
    ),
    mutant(Persistent, "no barrier behind the initialisation", &[("bar.sync 0;", 0, "")], Report(&[Race])),
    mutant(
        Persistent,
        "the bytes of one of B's halves are not expected",
        &[("[%r73+196608], 32768;", 0, "[%r73+196608], 24576;")],
        Report(&[Race, Deadlock, Mbarrier]),
    ),
    mutant(
        Persistent,
        "the producer starts in the wrong phase",
        &[("xor.b32 %r72, %r44, 1;", 0, "mov.b32 %r72, %r44;")],
        Report(&[Deadlock]),
    ),
    mutant(Persistent, "the producer's phase does not flip", &[("selp.b32 %r44, %r72, %r44, %p31;", 0, "")], Report(&[Deadlock])),
    mutant(Persistent, "the consumer's phase does not flip", &[("selp.b32 %r91, %r198, %r91, %p54;", 0, "")], Report(&[Race])),
    mutant(
        Persistent,
        "the consumer begins each tile with the first slot",
        &[("mov.b32 %r179, 0;", 0, "mov.b32 %r179, 0; mov.b32 %r90, 0;")],
        Report(&[Race, Deadlock]),
    ),
    mutant(
        Persistent,
        "the consumer begins each tile in the first phase",
        &[("mov.b32 %r179, 0;", 0, "mov.b32 %r179, 0; mov.b32 %r91, 0;")],
        Report(&[Race, Deadlock]),
    ),
    mutant(
        Persistent,
        "the producer begins each tile with the first slot",
        &[("mov.b32 %r71, 0;", 0, "mov.b32 %r71, 0; mov.b32 %r43, 0;")],
        Report(&[Race, Deadlock, Mbarrier]),
    ),
    mutant(
        Persistent,
        "the producer does not wait for the slot",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p30, [%r73+196656], %r72;", 0, "mov.pred %p30, 1;")],
        Report(&[Race]),
    ),
    mutant(
        Persistent,
        "the consumer does not wait for the data",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p53, [%r180+196608], %r91;", 0, "mov.pred %p53, 1;")],
        Report(&[Race]),
    ),
    mutant(Persistent, "no wgmma.fence", &[("wgmma.fence.sync.aligned;", 0, "")], Report(&[InFlight])),
    mutant(Persistent, "no commit", &[("wgmma.commit_group.sync.aligned;", 0, "")], Report(&[InFlight, Race])),
    mutant(
        Persistent,
        "the tile is stored before its last products are done",
        &[("wgmma.wait_group.sync.aligned 0;", 0, "wgmma.wait_group.sync.aligned 1;")],
        Report(&[InFlight, Race]),
    ),
    mutant(
        Persistent,
        "a slot is released before its products are done",
        &[("wgmma.commit_group.sync.aligned;", 0, EARLY_RELEASE), (RELEASE, 1, "")],
        Report(&[Race]),
    ),
    mutant(Persistent, "a slot is never released", &[(RELEASE, 0, "")], Report(&[Deadlock])),
    mutant(
        Persistent,
        "B's second half goes where the first is",
        &[("[%r74+106496], [%d1,", 0, "[%r74+98304], [%d1,")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Persistent,
        "the consumer takes one tile more than the producer",
        &[("setp.lt.s32 %p106, %r89, %r38;", 0, "setp.le.s32 %p106, %r89, %r38;")],
        Report(&[Deadlock]),
    ),
    mutant(
        Persistent,
        "the producer takes one tile more than the consumer",
        &[("setp.lt.s32 %p33, %r42, %r38;", 0, "setp.le.s32 %p33, %r42, %r38;")],
        Report(&[InFlight, Deadlock]),
    ),
    mutant(
        Persistent,
        "the result's last columns are stored without their bound: into the next rows",
        &[("@%p104 st.global.b32 [%d13+240], %r229;", 0, "st.global.b32 [%d13+240], %r229;")],
        Report(&[Race, OutOfBounds]),
    ),
    mutant(Persistent, "an accumulator is not cleared", &[("mov.b32 %r177, 0;", 0, "")], Report(&[Uninitialized])),
    mutant(Persistent, "B's leading offset", &[("or.b32 %r186, %r185, 33554432;", 0, "or.b32 %r186, %r185, 16777216;")], Gate),
    mutant(Persistent, "one step along K twice", &[("add.u32 %r193, %r186, 256;", 0, "add.u32 %r193, %r186, 128;")], Gate),
    mutant(
        Persistent,
        "both warpgroups multiply the same rows",
        &[("mad.lo.u32 %r187, %r183, 8192, %r181;", 0, "mov.b32 %r187, %r181;")],
        Gate,
    ),
];
