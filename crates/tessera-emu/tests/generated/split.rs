//! A product whose rounds two blocks of a cluster split: each sends the other one sums, which land where slots of a ring were.

use super::kernels::Kernel::Split;
use super::table::Caught::{Gate, Report};
use super::table::{Mutant, mutant};
use tessera_emu::FindingKind::{Deadlock, Mbarrier, OutOfBounds, Race};

// The wait that a wrong number of bytes ends too early is named beside the number: findings stand on both sides of it.
const CLUSTER_WAIT: &str = "barrier.cluster.wait.aligned;";
const FREE: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p23, [shared_memory+98400], 0;";
const LANDED: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p28, [shared_memory+98408], 0;";
const ARRIVE: &str = "mbarrier.arrive.shared::cluster.b64 _, [%r127];";
const BYTES: &str = "selp.b32 %r44, 8192, 0, %p7;";
const SENT: &str = "@%p25 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r128+6144]";

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant(Split, "sums are sent to slots that are still read", &[(FREE, 0, "mov.pred %p23, 1;")], Report(&[Race])),
    mutant(Split, "sums are added up before they are there", &[(LANDED, 0, "mov.pred %p28, 1;")], Report(&[Race])),
    mutant(Split, "no block says that its slots are free", &[(ARRIVE, 0, "")], Report(&[Deadlock])),
    mutant(
        Split,
        "the warps of one block free the slots of two",
        &[("[shared_memory+98400], 8;", 0, "[shared_memory+98400], 4;")],
        Report(&[Race, Mbarrier, Deadlock]),
    ),
    mutant(Split, "too many bytes expected", &[(BYTES, 0, "selp.b32 %r44, 8208, 0, %p7;")], Report(&[Deadlock])),
    mutant(Split, "too few bytes expected", &[(BYTES, 0, "selp.b32 %r44, 8176, 0, %p7;"), (LANDED, 0, LANDED)], Report(&[Race])),
    mutant(Split, "no bytes expected", &[(BYTES, 0, "selp.b32 %r44, 0, 0, %p7;"), (LANDED, 0, LANDED)], Report(&[Race])),
    mutant(
        Split,
        "a vector is sent over another one",
        &[(SENT, 0, "@%p25 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r128+4096]")],
        Report(&[Race]),
    ),
    mutant(
        Split,
        "sums are counted at the other block",
        &[("mapa.shared::cluster.u32 %r129, %r43, 0;", 0, "mapa.shared::cluster.u32 %r129, %r43, 1;")],
        Report(&[Deadlock, Race, Mbarrier]),
    ),
    mutant(Split, "barriers are used before the other block has made them", &[(CLUSTER_WAIT, 0, "")], Report(&[Race, Mbarrier])),
    mutant(
        Split,
        "a relaxed arrival does not say that barriers are made",
        &[("fence.mbarrier_init.release.cluster;", 1, "")],
        Report(&[Race]),
    ),
    mutant(
        Split,
        "sums lie where the buffer is not",
        &[("add.u32 %r124, %r123, 47104;", 0, "add.u32 %r124, %r123, 127104;")],
        Report(&[OutOfBounds]),
    ),
    mutant(Split, "a block has all rounds but one of its own", &[("shr.u32 %r9, %r0, 1;", 0, "mov.b32 %r9, %r0;")], Gate),
];
