//! What has not been ordered yet, at every point of a program: a forward analysis over its structure, loops until nothing changes.
//!
//! A state holds the accesses that no barrier has put before what comes next, the copies that no wait has completed by their groups, newest first, and
//! the reads of the tensor cores and of the copy engine that are under way. An access that needs an order with one of these is a [`Hazard`]: of the
//! first kind a barrier removes it, of the others a wait.
//!
//! | node | does |
//! |---|---|
//! | touch | is checked against everything, then is pending |
//! | meet | nothing is pending any more; inside a role, what came before the roles still is, and behind the roles all is again |
//! | await, land, sent | what is complete by now becomes pending: its own thread has waited, others have not |
//! | round | counts how many rounds ago its accesses were |
//!
//! Invariant: a pair of accesses without a hazard is ordered on every way, or needs no order.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::bug;

use super::entries::{Entries, Entry};
use super::place::Need;
use super::program::{AccessId, Kind, ListId, NodeId, Program};
use tessera_analysis::set::Set;

/// Groups, products or stores that are told apart.
const MOST: usize = 8;

/// Work under way in order of its start, newest first.
type Queue = SmallVec<[Set; 4]>;

fn push(queue: &mut Queue, set: Set) {
    queue.insert(0, set);
    if queue.len() > MOST
        && let Some(last) = queue.pop()
    {
        queue[MOST - 1].extend(&last);
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The point can be reached.
    live: bool,
    pending: Set,
    /// What barriers of the role have ordered for its own threads alone.
    past: Set,
    open: Set,
    groups: Queue,
    products: Queue,
    stores: Queue,
}

impl State {
    fn sets(&mut self) -> impl Iterator<Item = &mut Set> {
        let queues = [&mut self.groups, &mut self.products, &mut self.stores];
        [&mut self.pending, &mut self.past, &mut self.open].into_iter().chain(queues.into_iter().flatten())
    }

    fn each(&mut self, mut change: impl FnMut(&Set) -> Set) {
        self.sets().for_each(|set| *set = change(set));
    }

    /// Adds what another way to the same point brings; whether that is anything.
    fn merge(&mut self, other: &State) -> bool {
        if !other.live {
            return false;
        }
        let mut more = !std::mem::replace(&mut self.live, true);
        more |= self.pending.extend(&other.pending);
        more |= self.past.extend(&other.past);
        more |= self.open.extend(&other.open);
        let pairs = [(&mut self.groups, &other.groups), (&mut self.products, &other.products), (&mut self.stores, &other.stores)];
        for (queue, others) in pairs {
            more |= others.len() > queue.len();
            queue.resize(queue.len().max(others.len()), Set::default());
            for (set, other) in queue.iter_mut().zip(others) {
                more |= set.extend(other);
            }
        }
        more
    }
}

/// Two accesses without the order that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Hazard {
    pub(super) need: Need,
    /// A wait is missing, not a barrier.
    pub(super) under_way: bool,
    /// The first access came before the roles.
    pub(super) outer: bool,
    pub(super) first: AccessId,
    pub(super) then: AccessId,
}

/// What is known of a program.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// In order, without duplicates.
    pub(super) hazards: Vec<Hazard>,
    /// For each barrier and wait that may go, what it may order.
    ordered: FxHashMap<NodeId, Set>,
}

impl Findings {
    /// Whether every hazard is one of another program's too.
    pub(super) fn within(&self, other: &Findings) -> bool {
        self.hazards.iter().all(|hazard| other.hazards.binary_search(hazard).is_ok())
    }

    /// Whether a barrier or wait may order the first access of a pair that has no order elsewhere.
    pub(super) fn is_pinned(&self, node: NodeId, entries: &Entries) -> bool {
        let Some(ordered) = self.ordered.get(&node).filter(|_| !self.hazards.is_empty()) else { return false };
        ordered.iter().any(|entry| self.hazards.iter().any(|hazard| hazard.first == entries.get(entry).access))
    }
}

/// Analyses a program, with the entries of it that are known.
pub(super) fn analyse(program: &Program, entries: &mut Entries) -> Findings {
    let mut walk = Walk { program, entries, found: Findings::default(), loops: Vec::new(), in_role: false };
    walk.list(0, State { live: true, ..State::default() });
    let mut found = walk.found;
    found.hazards.sort_unstable();
    found.hazards.dedup();
    found
}

struct Walk<'p> {
    program: &'p Program,
    entries: &'p mut Entries,
    found: Findings,
    /// For each open loop what comes to its next round and what leaves it.
    loops: Vec<(State, State)>,
    in_role: bool,
}

impl Walk<'_> {
    fn list(&mut self, list: ListId, mut state: State) -> State {
        let program = self.program;
        for &node in &program.lists[list].nodes {
            if !state.live {
                break;
            }
            state = self.node(node, state);
        }
        state
    }

    fn node(&mut self, node: NodeId, mut state: State) -> State {
        let program = self.program;
        let data = &program.nodes[node];
        match &data.kind {
            &Kind::Touch(access) => {
                self.check(access, &state);
                state.pending.insert(self.entries.fresh(access));
            }
            Kind::Meet => {
                let waits = std::mem::take(&mut state.pending);
                let (outer, own) = match self.in_role {
                    true => self.apart(&waits),
                    false => (Set::default(), waits),
                };
                if data.optional {
                    self.found.ordered.entry(node).or_default().extend(&own);
                }
                if self.in_role {
                    state.past.extend(&own);
                }
                state.pending = outer;
            }
            &Kind::Start(access) => {
                self.check(access, &state);
                state.open.insert(self.entries.fresh(access));
            }
            Kind::Group => {
                let group = std::mem::take(&mut state.open);
                push(&mut state.groups, group);
            }
            &Kind::Await(pending) => {
                if data.optional {
                    let ordered = self.found.ordered.entry(node).or_default();
                    state.groups.iter().for_each(|group| {
                        ordered.extend(group);
                    });
                }
                Self::complete(&mut state.groups, pending, &mut state.pending);
            }
            Kind::Fly(reads) => {
                let mut set = Set::default();
                for &access in reads {
                    self.check(access, &state);
                    set.insert(self.entries.fresh(access));
                }
                push(&mut state.products, set);
            }
            &Kind::Land(pending) => Self::complete(&mut state.products, pending, &mut state.pending),
            &Kind::Send(access) => {
                self.check(access, &state);
                push(&mut state.stores, Set::of([self.entries.fresh(access)]));
            }
            &Kind::Sent(pending) => Self::complete(&mut state.stores, pending, &mut state.pending),
            &Kind::Rounds(body, once) => return self.rounds(body, once, state),
            Kind::Ways(ways) => {
                let mut end = State::default();
                for &way in ways {
                    let after = self.list(way, state.clone());
                    end.merge(&after);
                }
                return end;
            }
            Kind::Roles(lists) => return self.roles(lists, state),
            Kind::Next => self.leave(&state, false),
            Kind::Leave => self.leave(&state, true),
            Kind::End => {}
        }
        if matches!(data.kind, Kind::Next | Kind::Leave | Kind::End) {
            return State::default();
        }
        state
    }

    fn leave(&mut self, state: &State, out: bool) {
        if let Some((next, exit)) = self.loops.last_mut() {
            let target = if out { exit } else { next };
            target.merge(state);
        }
    }

    /// What came before the role, and the rest.
    fn apart(&self, set: &Set) -> (Set, Set) {
        let outer = Set::of(set.iter().filter(|&entry| self.entries.get(entry).outer));
        let own = set.without(&outer);
        (outer, own)
    }

    fn complete(queue: &mut Queue, pending: u32, into: &mut Set) {
        for done in queue.drain((pending as usize).min(queue.len())..) {
            into.extend(&done);
        }
    }

    fn rounds(&mut self, body: ListId, once: bool, entry: State) -> State {
        let mut before = entry.clone();
        loop {
            self.loops.push((State::default(), State::default()));
            let end = self.list(body, before.clone());
            let (mut next, mut exit) = self.loops.pop().unwrap_or_else(|| bug!("a loop that ends twice"));
            next.merge(&end);
            // A loop that counts is left from the end of a round, any other by its exits.
            if self.counts(body) {
                exit.merge(&next);
            }
            next.each(|set| self.entries.a_round_later(set, self.program, body));
            if !before.merge(&next) {
                if !once {
                    exit.merge(&entry);
                }
                exit.each(|set| self.entries.behind(set, self.program, body));
                return exit;
            }
        }
    }

    /// Whether the loop of a body is left from the end of a round: no exit leaves it.
    fn counts(&self, body: ListId) -> bool {
        self.program.counted.contains(&body)
    }

    fn roles(&mut self, lists: &[ListId], state: State) -> State {
        let mut inner = state;
        inner.each(|set| self.entries.outside(set, true));
        self.in_role = true;
        let mut end = State::default();
        for &list in lists {
            let mut after = self.list(list, inner.clone());
            let past = std::mem::take(&mut after.past);
            after.pending.extend(&past);
            end.merge(&after);
        }
        self.in_role = false;
        end.each(|set| self.entries.outside(set, false));
        end
    }

    /// Checks an access against everything that it may have to wait for.
    fn check(&mut self, access: AccessId, state: &State) {
        let under_way = state.groups.iter().chain(&state.products).chain(&state.stores).chain([&state.open]);
        for (set, under_way) in under_way.map(|set| (set, true)).chain([(&state.pending, false)]) {
            for (entry, need) in self.entries.needs(set, self.program, access, under_way) {
                let Entry { access: first, outer, .. } = self.entries.get(entry);
                self.found.hazards.push(Hazard { need, under_way, outer, first, then: access });
            }
        }
    }
}
