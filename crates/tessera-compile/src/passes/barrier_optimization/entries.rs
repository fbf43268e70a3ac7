//! Accesses that others have not been ordered behind, as numbers: a state of the analysis is sets of them, and trials ask about the same ones again
//! and again.
//!
//! Invariant: a number means the same entry for as long as the program's accesses do not change; barriers and waits may.

use rustc_hash::FxHashMap;
use tessera_ir::bug;

use super::place::{Need, Pairs, Way};
use super::program::{AccessId, ListId, Program};
use tessera_analysis::set::Set;

/// An access that others have not been ordered behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) access: AccessId,
    /// How many rounds of its loop ago it was; [`FAR`] where that is not known.
    pub(super) rounds: u8,
    /// How deep the loops are that have gone round since.
    pub(super) crossed: u8,
    /// It came before the role.
    pub(super) outer: bool,
}

/// As many rounds and more are the same, and so is not to know.
const FAR: u8 = 12;

/// A position in [`Entries::all`].
pub(super) type EntryId = usize;

/// Entries by number, and what has been decided about them.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: Vec<Entry>,
    numbers: FxHashMap<Entry, EntryId>,
    /// Which entries an access has to wait for; with `true`, where they are still under way.
    waits: FxHashMap<(AccessId, bool), Waits>,
    /// For each loop's body what each entry is a round later, as far as that has been asked.
    later: FxHashMap<ListId, Vec<Option<EntryId>>>,
}

/// What an access has to wait for.
#[derive(Debug, Default)]
struct Waits {
    /// Entries that have been decided about.
    decided: Set,
    /// Those that it needs an order with.
    needed: Set,
    needs: FxHashMap<EntryId, Need>,
}

impl Entries {
    /// The number of an entry.
    fn number(&mut self, entry: Entry) -> EntryId {
        let Entries { all, numbers, .. } = self;
        *numbers.entry(entry).or_insert_with(|| {
            all.push(entry);
            all.len() - 1
        })
    }

    /// An entry by its number.
    pub(super) fn get(&self, entry: EntryId) -> Entry {
        self.all[entry]
    }

    /// An access that has just been made.
    pub(super) fn fresh(&mut self, access: AccessId) -> EntryId {
        self.number(Entry { access, rounds: 0, crossed: u8::MAX, outer: false })
    }

    /// The same entries, all before the role or none.
    pub(super) fn outside(&mut self, set: &Set, outer: bool) -> Set {
        Set::of(set.iter().map(|entry| self.number(Entry { outer, ..self.all[entry] })))
    }

    /// The same entries when the next round of a loop begins.
    pub(super) fn a_round_later(&mut self, set: &Set, program: &Program, body: ListId) -> Set {
        // Taken out while it grows: entries get their numbers from the rest.
        let mut known = std::mem::take(self.later.entry(body).or_default());
        known.resize(known.len().max(self.all.len()), None);
        let later = Set::of(set.iter().map(|entry| {
            *known[entry].get_or_insert_with(|| {
                let later = round_later(self.all[entry], program, body);
                self.number(later)
            })
        }));
        self.later.insert(body, known);
        later
    }

    /// The same entries behind a loop: how many of its rounds ago they were is not known.
    pub(super) fn behind(&mut self, set: &Set, program: &Program, body: ListId) -> Set {
        let looped = program.nodes[holder(program, body)].op;
        Set::of(set.iter().map(|entry| {
            let entry = self.all[entry];
            match program.accesses[entry.access].looped == Some(looped) {
                true => self.number(Entry { rounds: FAR, ..entry }),
                false => self.number(entry),
            }
        }))
    }

    /// The entries of a set that an access needs an order with.
    pub(super) fn needs(&mut self, set: &Set, program: &Program, then: AccessId, under_way: bool) -> Vec<(EntryId, Need)> {
        let waits = self.waits.entry((then, under_way)).or_default();
        for entry in set.without(&waits.decided).iter() {
            waits.decided.insert(entry);
            if let Some(need) = need(self.all[entry], program, then, under_way) {
                waits.needed.insert(entry);
                waits.needs.insert(entry, need);
            }
        }
        set.of_both(&waits.needed).iter().map(|entry| (entry, waits.needs[&entry])).collect()
    }
}

fn round_later(entry: Entry, program: &Program, body: ListId) -> Entry {
    let holder = holder(program, body);
    let own = program.accesses[entry.access].looped == Some(program.nodes[holder].op);
    let rounds = match own {
        true => (entry.rounds + 1).min(FAR),
        false if program.is_inside(program.node_of[entry.access], holder) => FAR,
        false => entry.rounds,
    };
    Entry { rounds, crossed: entry.crossed.min(program.lists[body].depth), ..entry }
}

/// The loop that a body is of.
fn holder(program: &Program, body: ListId) -> usize {
    program.lists[body].parent.unwrap_or_else(|| bug!("a loop's body that no loop holds"))
}

fn need(entry: Entry, program: &Program, then: AccessId, under_way: bool) -> Option<Need> {
    let pairs = Pairs { per_thread: program.per_thread, depth: &program.depth };
    let (first, then) = (&program.accesses[entry.access], &program.accesses[then]);
    let rounds = (entry.rounds < FAR).then_some(i64::from(entry.rounds));
    let way = Way { rounds, looped: first.looped, crossed: entry.crossed };
    match under_way {
        // Its own thread would not wait either.
        true => pairs.need_apart(first, then, way),
        false => pairs.need(first, then, way),
    }
}
