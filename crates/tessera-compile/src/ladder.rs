//! The ladder: ways to lay a kernel out on a target, tried in a stated order until one fits.
//!
//! | rung | what changes | tried where |
//! |---|---|---|
//! | as it is | nothing | always |
//! | half of the memory, a quarter, ... | rings and factors take less shared memory | the same with more did not fit there |
//! | registers to copy | threads that copy get more registers, from those that compute | a role that copies holds more than it has |
//! | strips | the block's tiles are cut, and done strip by strip | a thread holds more than it has, or memory does not suffice |
//! | exchanges in parts | threads exchange elements through 1/2 of the shared memory, 1/4, 1/8, 1/16, part by part | memory does not suffice |
//! | without roles, generic | all warps do the same; no recipe is asked | a recipe took the kernel |
//! | more warps | threads hold less each | the block has fewer threads than registers allow |
//!
//! On each rung `memory-management` does what it can: it computes values again, keeps them in shared memory, loads them again, and leaves the
//! rest to local memory, each with a cost. The first rung that costs nothing is taken, else the one that costs least. So the same
//! kernel always comes out the same, and none is refused for its registers.

use tessera_ir::{Diagnostic, Fallback, Func, Level, Reason};
use tessera_types::Arch;

use crate::tile::strips::Strips;

/// The recipes in which all warps do the same.
const ALL_THE_SAME: [&str; 2] = ["multistage-pipeline", "cluster-rows"];

/// Which staging passes are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipes {
    /// All.
    #[default]
    All,
    /// Those in which all warps do the same.
    WithoutRoles,
    /// None: the generic road.
    Generic,
}

impl Recipes {
    /// Those of some names that are asked.
    pub(crate) fn asked<'n>(self, names: &[&'n str]) -> Vec<&'n str> {
        names
            .iter()
            .copied()
            .filter(|name| match self {
                Recipes::All => true,
                Recipes::WithoutRoles => ALL_THE_SAME.contains(name),
                Recipes::Generic => false,
            })
            .collect()
    }
}

/// A way to share a block's work out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The parts that the block's tiles are cut into.
    pub strips: Strips,
    /// Which recipes are asked.
    pub recipes: Recipes,
    /// Warps of a block, where neither the kernel's author nor a rule shall decide.
    pub warps: Option<u32>,
    /// Recipes and factors of products may use `1 / 2^narrowed` of a block's shared memory.
    pub narrowed: u32,
    /// An exchange between threads may use one of so many parts of a block's shared memory.
    pub parts: Option<u32>,
    /// Registers that a thread which copies has at least, at the cost of those that compute.
    pub copying: Option<u32>,
}

/// What became of a partition.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The partition.
    pub partition: Partition,
    /// The recipe that took the kernel.
    pub recipe: Option<&'static str>,
    /// Threads of a block.
    pub threads: u32,
    /// What was done to make it fit, or what does not.
    pub outcome: Result<Vec<Fallback>, Diagnostic>,
}

/// Parts of the shared memory of which an exchange has one.
const PARTS: [u32; 4] = [2, 4, 8, 16];
/// Halvings of the shared memory that are tried.
const NARROWEST: u32 = 2;
/// Registers with which threads that copy find what comes next of several tiles of open sizes.
const COPYING: u32 = 32;

impl Partition {
    /// Nothing changed.
    pub const WHOLE: Partition =
        Partition { strips: Strips::NONE, recipes: Recipes::All, warps: None, narrowed: 0, parts: None, copying: None };

    /// Bytes of shared memory that rings and factors may use, where fewer than all.
    pub fn rings(&self, arch: Arch) -> Option<u32> {
        (self.narrowed > 0).then(|| arch.limits().shared_per_block >> self.narrowed)
    }

    /// Bytes of shared memory that an exchange between threads may use, where fewer than all.
    pub fn exchange(&self, arch: Arch) -> Option<u32> {
        self.parts.map(|parts| arch.limits().shared_per_block / parts / 1024 * 1024)
    }

    /// What the kernel's author wrote is done in another way.
    pub fn changes(&self) -> bool {
        Partition { narrowed: 0, copying: None, ..self.clone() } != Partition::WHOLE
    }

    /// What it changes, in words.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some([whole, strip]) = &self.strips.tiles {
            parts.push(format!("in {} strips of {strip} of the tiles of {whole}, one after the other", self.strips.count()));
        }
        match self.recipes {
            Recipes::All => {}
            Recipes::WithoutRoles => parts.push("without roles".to_string()),
            Recipes::Generic => parts.push("without recipes".to_string()),
        }
        parts.extend(self.warps.map(|warps| format!("with {warps} warps")));
        match self.narrowed {
            0 => {}
            1 => parts.push("with half of the shared memory for recipes".to_string()),
            more => parts.push(format!("with 1/{} of the shared memory for recipes", 1 << more)),
        }
        parts.extend(self.copying.map(|least| format!("with {least} registers or more for threads that copy")));
        parts.extend(self.parts.map(|of| format!("with exchanges through 1/{of} of the shared memory")));
        if parts.is_empty() { "as it is".to_string() } else { parts.join(", ") }
    }
}

impl Attempt {
    /// What it costs beyond what is cheap; `None` where it does not fit.
    pub fn cost(&self) -> Option<u64> {
        let fallbacks = self.outcome.as_ref().ok()?;
        Some(fallbacks.iter().map(|fallback| fallback.cost).sum())
    }

    /// What was done that costs most.
    pub fn dearest(&self) -> Option<&Fallback> {
        self.outcome.as_ref().ok()?.iter().max_by_key(|fallback| fallback.cost)
    }

    /// What is asked for does not fit into shared memory.
    fn lacks_memory(&self) -> bool {
        self.outcome.as_ref().is_err_and(is_too_large)
    }
}

/// An error that another partition may do without.
pub(crate) fn is_too_large(error: &Diagnostic) -> bool {
    error.id == "target-shared-memory"
}

/// The rungs, as they become known.
pub(crate) struct Ladder<'f> {
    func: &'f Func,
    arch: Arch,
    /// Rungs that are still to be tried; `None` until the first has been.
    rungs: Option<std::vec::IntoIter<Partition>>,
    /// Why there are no more strips.
    pub(crate) whole: Option<Reason>,
}

impl Ladder<'_> {
    /// The ladder of a function in the forms that staging passes know.
    pub(crate) fn new(func: &Func, arch: Arch) -> Ladder<'_> {
        Ladder { func, arch, rungs: None, whole: None }
    }

    /// The next partition to try; `None` where one has been found that costs nothing, or there are no more.
    pub(crate) fn next(&mut self, tried: &[Attempt]) -> Option<Partition> {
        let Some(last) = tried.last() else { return Some(Partition::WHOLE) };
        // What a user has planned is done so, or not at all.
        if last.cost() == Some(0) || self.func.level == Level::Tile || self.func.plan.is_some() {
            return None;
        }
        if last.lacks_memory() && last.partition.narrowed < NARROWEST {
            return Some(Partition { narrowed: last.partition.narrowed + 1, ..last.partition.clone() });
        }
        let rungs = match self.rungs.take() {
            Some(rungs) => rungs,
            None => self.others(&tried[0], last).into_iter(),
        };
        let rungs = self.rungs.insert(rungs);
        rungs.find(|rung| is_worth_it(rung, tried))
    }

    /// The rungs behind the first; the last one that was tried has as much memory as it could have.
    fn others(&mut self, first: &Attempt, last: &Attempt) -> Vec<Partition> {
        let (ways, reason) = Strips::ways(self.func);
        self.whole = Some(reason);
        let mut rungs: Vec<Partition> = Vec::new();
        if last.recipe == Some("warp-specialization") && !last.lacks_memory() {
            rungs.push(Partition { copying: Some(COPYING), ..last.partition.clone() });
        }
        rungs.extend(ways.into_iter().map(|strips| Partition { strips, ..Partition::WHOLE }));
        if first.lacks_memory() {
            let exchanges = |&parts: &u32| Partition { parts: Some(parts), narrowed: NARROWEST, ..Partition::WHOLE };
            rungs.extend(PARTS.iter().map(exchanges));
        }
        let recipes: &[Recipes] = match first.recipe {
            Some(name) if ALL_THE_SAME.contains(&name) => &[Recipes::Generic],
            Some(_) => &[Recipes::WithoutRoles, Recipes::Generic],
            None => &[],
        };
        rungs.extend(recipes.iter().map(|&recipes| Partition { recipes, ..Partition::WHOLE }));
        let limits = self.arch.limits();
        let most = limits.registers_per_sm / limits.registers_per_thread / Arch::WARP;
        let warps = first.threads / Arch::WARP;
        let more = (1..=5)
            .map(|bits| warps << bits)
            .take_while(|&warps| warps / 2 < most && warps * Arch::WARP <= limits.threads_per_block);
        rungs.extend(more.map(|warps| Partition { recipes: Recipes::Generic, warps: Some(warps), ..Partition::WHOLE }));
        rungs
    }
}

/// More strips are worth trying until they have cost more twice in turn.
fn is_worth_it(rung: &Partition, tried: &[Attempt]) -> bool {
    let strips = rung.strips.count();
    let cost = |attempt: &Attempt| attempt.cost().unwrap_or(u64::MAX);
    let of = |count: u64| tried.iter().filter(move |attempt| attempt.partition.strips.count() == count).map(cost).min();
    match (of(strips / 2), of(strips / 4), of(strips / 8)) {
        (Some(half), Some(quarter), Some(eighth)) => half <= quarter || quarter <= eighth || half == u64::MAX,
        _ => true,
    }
}
