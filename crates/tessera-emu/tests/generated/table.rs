//! What is planted, and how it shows.

use tessera_emu::FindingKind;

use super::kernels::Kernel;
use super::kernels::Kernel::{Attention, Persistent, Ring};
use super::{attention, persistent, ring, rows, split, warps};

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

pub(crate) const fn mutant(
    kernel: Kernel,
    what: &'static str,
    edits: &'static [(&'static str, usize, &'static str)],
    caught: Caught,
) -> Mutant {
    Mutant { kernel, what, edits, caught }
}

/// All mistakes.
pub(crate) fn mutants() -> impl Iterator<Item = &'static Mutant> {
    [ring::MUTANTS, warps::MUTANTS, rows::MUTANTS, persistent::MUTANTS, split::MUTANTS, attention::MUTANTS].into_iter().flatten()
}

const RELEASE_KEYS: &str = "@%p26 mbarrier.arrive.shared::cta.b64 _, [%r309+49168];";
const EARLY_KEYS: &str = "wgmma.commit_group.sync.aligned; @%p26 mbarrier.arrive.shared::cta.b64 _, [%r309+49168];";

/// Changes that change nothing, and why.
pub(crate) const EQUIVALENT: &[(Mutant, &str)] = &[
    (
        mutant(Ring, "no bar.warp.sync before the release", &[("bar.warp.sync 4294967295;", 0, "")], Caught::Gate),
        "the `.aligned` wait before it is executed by all lanes together, and no lane touches memory between the two",
    ),
    (
        mutant(
            Ring,
            "another leading offset",
            &[("or.b32 %r125, %r124, 65536;", 0, "or.b32 %r125, %r124, 131072;")],
            Caught::Gate,
        ),
        "the leading offset of a K-major operand with a swizzle is not used (PTX ISA, \"Strides\" of wgmma: a K step lies in one swizzled row)",
    ),
    (
        mutant(Persistent, "no bar.warp.sync before the release", &[("bar.warp.sync 4294967295;", 0, "")], Caught::Gate),
        "as in the product that is not persistent: the `.aligned` wait stands before it",
    ),
    (
        mutant(
            Attention,
            "no fence behind the first barriers' initialisation",
            &[("fence.mbarrier_init.release.cluster;", 0, "")],
            Caught::Gate,
        ),
        "the fences behind the other barriers are executed by the same thread, later and before the block's barrier: they order all its initialisations",
    ),
    (
        mutant(
            Attention,
            "the keys' slot is released before the product is done",
            &[("wgmma.commit_group.sync.aligned;", 1, EARLY_KEYS), (RELEASE_KEYS, 1, "")],
            Caught::Gate,
        ),
        "the next keys for the slot are fetched behind values whose slot is released only after the wait for all products of the round",
    ),
    (
        mutant(
            Attention,
            "one producer waits for nothing in the queries' slot",
            &[("mbarrier.try_wait.parity.shared::cta.b64 %p9, [shared_memory+49224], 1;", 0, "mov.pred %p9, 1;")],
            Caught::Gate,
        ),
        "the slot is filled once: the phase before the first is over from the start",
    ),
];
