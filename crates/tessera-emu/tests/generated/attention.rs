//! Two chained products: rings of two slots for keys and values, the second product of a round beside the first of the next.

use super::kernels::Kernel::Attention;
use super::table::Caught::{Gate, Report};
use super::table::{Mutant, mutant};
use tessera_emu::FindingKind::{Deadlock, InFlight, Mbarrier, ProxyFence, Race, Uninitialized};

const COMMIT: &str = "wgmma.commit_group.sync.aligned;";
const RELEASE_VALUES: &str = "@%p26 mbarrier.arrive.shared::cta.b64 _, [%r358+49200];";
const EARLY_VALUES: &str = "wgmma.commit_group.sync.aligned; @%p26 mbarrier.arrive.shared::cta.b64 _, [%r358+49200];";

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(
        Attention,
        "no fence behind the initialisation of the values' barriers",
        &[("fence.mbarrier_init.release.cluster;", 1, ""), ("fence.mbarrier_init.release.cluster;", 1, "")],
        Report(&[ProxyFence]),
    ),
    mutant(Attention, "no barrier behind the initialisation", &[("bar.sync 0;", 0, "")], Report(&[Race, Mbarrier])),
    mutant(
        Attention,
        "nobody waits for the queries",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p23, [shared_memory+49216], 0;", 0, "mov.pred %p23, 1;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Attention,
        "nobody waits for the first keys",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p25, [shared_memory+49152], 0;", 0, "mov.pred %p25, 1;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Attention,
        "nobody waits for the next keys",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p28, [%r309+49152], %r89;", 0, "mov.pred %p28, 1;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Attention,
        "nobody waits for the values",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p29, [%r358+49184], %r307;", 0, "mov.pred %p29, 1;")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Attention,
        "the producer does not wait for the keys' slot",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p11, [%r34+49168], %r33;", 0, "mov.pred %p11, 1;")],
        Report(&[Race]),
    ),
    mutant(
        Attention,
        "the producer does not wait for the values' slot",
        &[("mbarrier.try_wait.parity.shared::cta.b64 %p12, [%r38+49200], %r37;", 0, "mov.pred %p12, 1;")],
        Report(&[Race]),
    ),
    mutant(
        Attention,
        "the bytes of half of the values expected",
        &[("[%r38+49184], 8192;", 0, "[%r38+49184], 4096;")],
        Report(&[Race, Deadlock, Mbarrier]),
    ),
    mutant(
        Attention,
        "the keys' phase does not flip for the consumer",
        &[("selp.b32 %r89, %r534, %r89, %p30;", 0, "")],
        Report(&[Race, Deadlock]),
    ),
    mutant(
        Attention,
        "the values' phase does not flip for the producer",
        &[("selp.b32 %r31, %r37, %r31, %p14;", 0, "")],
        Report(&[Deadlock]),
    ),
    mutant(
        Attention,
        "the values' slot is released before the product is done",
        &[(COMMIT, 2, EARLY_VALUES), (RELEASE_VALUES, 1, "")],
        Report(&[Race]),
    ),
    mutant(Attention, "the values' slot is never released", &[(RELEASE_VALUES, 0, "")], Report(&[Deadlock])),
    mutant(
        Attention,
        "the wait leaves both products under way",
        &[("wgmma.wait_group.sync.aligned 1;", 0, "wgmma.wait_group.sync.aligned 2;")],
        Report(&[InFlight, Race]),
    ),
    mutant(
        Attention,
        "no wait before the result is scaled",
        &[("wgmma.wait_group.sync.aligned 0;", 1, "")],
        Report(&[InFlight, Race]),
    ),
    mutant(Attention, "no commit between the two products", &[(COMMIT, 1, "")], Report(&[InFlight, Race])),
    mutant(
        Attention,
        "no wgmma.fence before the second product",
        &[("wgmma.fence.sync.aligned;", 1, ""), ("wgmma.fence.sync.aligned;", 1, "")],
        Report(&[InFlight]),
    ),
    mutant(
        Attention,
        "the values go where the keys are",
        &[("[%r39+16384], [%d2,", 0, "[%r39], [%d2,")],
        Report(&[Race, Uninitialized]),
    ),
    mutant(
        Attention,
        "the ring of keys is one slot short for the producer",
        &[("setp.eq.u32 %p13, %r40, 2;", 0, "setp.eq.u32 %p13, %r40, 1;")],
        Report(&[Deadlock, Race]),
    ),
    mutant(Attention, "keys in the values' place", &[("[%r39+16384], [%d2,", 0, "[%r39+16384], [%d1,")], Gate),
    mutant(
        Attention,
        "the values' leading offset is the keys'",
        &[("add.u32 %r364, %r363, 128;", 0, "add.u32 %r364, %r363, 2;")],
        Gate,
    ),
    mutant(
        Attention,
        "every warpgroup takes the first queries",
        &[("mad.lo.u32 %r315, %r311, 8192, %r5;", 0, "mov.b32 %r315, %r5;")],
        Gate,
    ),
];
