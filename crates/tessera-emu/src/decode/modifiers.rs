//! The dotted parts of an instruction, and which of them its translation looked at.
//!
//! A modifier that nobody looks at would be ignored in silence: an instruction with one that is no mere hint is refused.

use std::cell::Cell;

use tessera_ptx::{Modifier, Type, Word};

use super::Result;

/// Modifiers that change no value in any instruction: hints to caches and compilers, what the operands say as well, and what is so in
/// any case (rounding to nearest, denormals kept in atomics).
#[rustfmt::skip]
const NEUTRAL: &[Word] = &[
    Word::Rn, Word::Approx, Word::Full, Word::Noftz, Word::Sync, Word::Aligned, Word::Uni,
    Word::V2, Word::V4, Word::V8, Word::X1, Word::X2, Word::X4, Word::M8n8,
    Word::D1, Word::D2, Word::D3, Word::D4, Word::D5,
    Word::Ca, Word::Cg, Word::Cs, Word::Lu, Word::Cv, Word::Wb, Word::Wt, Word::Nc, Word::Mmio,
    Word::L1EvictNormal, Word::L1EvictUnchanged, Word::L1EvictFirst, Word::L1EvictLast, Word::L1NoAllocate,
    Word::L2CacheHint, Word::L2B64, Word::L2B128, Word::L2B256,
    Word::L2EvictLast, Word::L2EvictNormal, Word::L2EvictFirst, Word::L2EvictUnchanged,
    Word::Async, Word::Bulk, Word::Tensor, Word::Tile, Word::MbarrierCompleteTx, Word::Mbarrier,
];

/// What an instruction's name or the absence of its other choices says.
#[rustfmt::skip]
const IMPLIED: &[(&str, &[Word])] = &[
    ("bar", &[Word::Cta]), ("barrier", &[Word::Cta, Word::Arrive, Word::Acquire, Word::Release]), ("brx", &[Word::Idx]),
    ("createpolicy", &[Word::Cvt, Word::Fractional, Word::Range, Word::Global, Word::L2]),
    ("discard", &[Word::L2, Word::Global]), ("applypriority", &[Word::Global]),
    ("prefetch", &[Word::L1, Word::L2, Word::Global, Word::Local, Word::Const, Word::Param, Word::Tensormap]), ("prefetchu", &[Word::L1]),
    // A fence of one order or space is a fence of all.
    ("fence", &[Word::Proxy, Word::Alias, Word::Acquire, Word::Release, Word::Global, Word::SharedCta, Word::SharedCluster,
        Word::SyncRestrictCta, Word::SyncRestrictCluster, Word::Cluster, Word::Cta, Word::Gpu, Word::Sys]),
    ("membar", &[Word::Proxy, Word::Alias]),
    ("getctarank", &[Word::SharedCluster]), ("mapa", &[Word::SharedCluster]),
    ("griddepcontrol", &[Word::LaunchDependents]), ("match", &[Word::Any]), ("pmevent", &[Word::Mask]),
    ("mad", &[Word::Lo, Word::Hi]), ("madc", &[Word::Lo, Word::Hi]), ("mad24", &[Word::Hi]), ("shf", &[Word::R, Word::Clamp]), ("dp2a", &[Word::Lo]),
    ("mbarrier", &[Word::NoComplete]), ("setmaxnreg", &[Word::Dec]),
    ("st", &[Word::SharedCluster, Word::Weak]), ("red", &[Word::Relaxed, Word::Cluster, Word::SharedCluster]),
    ("cp", &[Word::BulkGroup, Word::Im2colNoOffs, Word::CommitGroup, Word::L2, Word::Global, Word::Shared, Word::SharedCta]),
    ("tensormap", &[Word::Replace, Word::B1024, Word::Global, Word::SharedCta, Word::GenericProxy, Word::Release, Word::Cta, Word::Cluster, Word::Gpu, Word::Sys]),
    ("wmma", &[Word::Store, Word::MatrixC, Word::MatrixD, Word::Col]), ("wgmma", &[Word::MmaAsync]),
];

#[derive(Clone, Copy)]
pub(super) struct Mods<'a> {
    list: &'a [Modifier],
    /// A bit a modifier.
    seen: &'a Cell<u32>,
}

impl<'a> Mods<'a> {
    pub(super) fn new(list: &'a [Modifier], seen: &'a Cell<u32>) -> Mods<'a> {
        Mods { list, seen }
    }

    fn mark(self, index: usize) {
        self.seen.set(self.seen.get() | 1 << (index % 32));
    }

    /// What the function gives for the first word for which it gives something.
    pub(super) fn pick<T>(self, of: impl Fn(Word) -> Option<T>) -> Option<T> {
        self.each(of).next()
    }

    /// What the function gives for each word.
    pub(super) fn each<T>(self, of: impl Fn(Word) -> Option<T>) -> impl Iterator<Item = T> {
        self.list.iter().enumerate().filter_map(move |(index, modifier)| {
            let found = match modifier {
                Modifier::Word(word) => of(*word),
                Modifier::Shape { .. } | Modifier::Type(_) => None,
            };
            if found.is_some() {
                self.mark(index);
            }
            found
        })
    }

    pub(super) fn has(self, word: Word) -> bool {
        self.pick(|own| (own == word).then_some(())).is_some()
    }

    /// The first of the words that is present.
    pub(super) fn any(self, words: &[Word]) -> Option<Word> {
        self.pick(|own| words.contains(&own).then_some(own))
    }

    pub(super) fn types(self) -> impl DoubleEndedIterator<Item = Type> {
        self.list.iter().enumerate().filter_map(move |(index, modifier)| match modifier {
            Modifier::Type(ty) => {
                self.mark(index);
                Some(*ty)
            }
            Modifier::Shape { .. } | Modifier::Word(_) => None,
        })
    }

    /// The last type.
    pub(super) fn ty(self) -> Result<Type> {
        self.types().next_back().ok_or_else(|| "the instruction has no type".to_owned())
    }

    pub(super) fn shape(self) -> Option<(u16, u16, u16)> {
        self.list.iter().enumerate().find_map(|(index, modifier)| match modifier {
            Modifier::Shape { m, n, k } => {
                self.mark(index);
                Some((*m, *n, *k))
            }
            Modifier::Type(_) | Modifier::Word(_) => None,
        })
    }

    /// The first modifier that nobody looked at and that changes something.
    pub(super) fn unseen(self, mnemonic: &str) -> Option<Modifier> {
        let unseen = self.list.iter().enumerate().filter(|(index, _)| self.seen.get() >> (index % 32) & 1 == 0);
        let implied = IMPLIED.iter().find(|(of, _)| *of == mnemonic).map_or(&[][..], |(_, words)| words);
        unseen.map(|(_, modifier)| *modifier).find(|modifier| match modifier {
            Modifier::Word(word) => !NEUTRAL.contains(word) && !implied.contains(word),
            // Registers and operands have the type.
            Modifier::Type(_) => false,
            Modifier::Shape { .. } => true,
        })
    }
}
