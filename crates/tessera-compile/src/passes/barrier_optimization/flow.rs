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

use smallvec::SmallVec;
use tessera_ir::{Op, bug};

use super::place::{Need, Pairs, Way};
use super::program::{AccessId, Kind, ListId, NodeId, Program};

/// An access that others have not been ordered behind: which one, how many rounds ago, how deep the loops that have gone round since, and whether it
/// came before the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    access: u32,
    rounds: u8,
    crossed: u8,
    outer: bool,
}

/// As many rounds and more are the same, and so is not to know.
const FAR: u8 = 12;
/// Groups, products or stores that are told apart.
const MOST: usize = 8;

/// Entries in order.
type Set = Vec<Entry>;

fn add(set: &mut Set, entry: Entry) {
    if let Err(place) = set.binary_search(&entry) {
        set.insert(place, entry);
    }
}

fn unite(set: &mut Set, other: &Set) -> bool {
    let before = set.len();
    for &entry in other {
        add(set, entry);
    }
    set.len() != before
}

/// Work under way in order of its start, newest first.
type Queue = SmallVec<[Set; 4]>;

fn push(queue: &mut Queue, set: Set) {
    queue.insert(0, set);
    if queue.len() > MOST
        && let Some(last) = queue.pop()
    {
        unite(&mut queue[MOST - 1], &last);
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
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

    fn each(&mut self, change: impl Fn(&mut Entry)) {
        for set in self.sets() {
            set.iter_mut().for_each(&change);
            set.sort_unstable();
            set.dedup();
        }
    }

    /// Adds what another way to the same point brings; whether that is anything.
    fn merge(&mut self, other: &State) -> bool {
        if !other.live {
            return false;
        }
        let mut more = !std::mem::replace(&mut self.live, true);
        more |= unite(&mut self.pending, &other.pending);
        more |= unite(&mut self.past, &other.past);
        more |= unite(&mut self.open, &other.open);
        let pairs = [(&mut self.groups, &other.groups), (&mut self.products, &other.products), (&mut self.stores, &other.stores)];
        for (queue, others) in pairs {
            more |= others.len() > queue.len();
            queue.resize(queue.len().max(others.len()), Set::new());
            for (set, other) in queue.iter_mut().zip(others) {
                more |= unite(set, other);
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
    /// For each barrier and wait that may go, the accesses that it may order.
    pub(super) ordered: Vec<(NodeId, AccessId)>,
}

impl Findings {
    /// Whether every hazard is one of another program's too.
    pub(super) fn within(&self, other: &Findings) -> bool {
        self.hazards.iter().all(|hazard| other.hazards.binary_search(hazard).is_ok())
    }
}

/// Analyses a program.
pub(super) fn analyse(program: &Program) -> Findings {
    let pairs = Pairs { per_thread: program.per_thread, depth: &program.depth };
    let mut walk = Walk { program, pairs, found: Findings::default(), loops: Vec::new(), in_role: false };
    walk.list(0, State { live: true, ..State::default() });
    let mut found = walk.found;
    found.hazards.sort_unstable();
    found.hazards.dedup();
    found.ordered.sort_unstable();
    found.ordered.dedup();
    found
}

struct Walk<'p> {
    program: &'p Program,
    pairs: Pairs<'p>,
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
                add(&mut state.pending, Self::fresh(access));
            }
            Kind::Meet => {
                if data.optional {
                    let ordered = state.pending.iter().filter(|entry| !(self.in_role && entry.outer));
                    self.found.ordered.extend(ordered.map(|entry| (node, entry.access as AccessId)));
                }
                if self.in_role {
                    let (outer, own): (Set, Set) = state.pending.iter().partition(|entry| entry.outer);
                    state.pending = outer;
                    unite(&mut state.past, &own);
                } else {
                    state.pending.clear();
                }
            }
            &Kind::Start(access) => {
                self.check(access, &state);
                add(&mut state.open, Self::fresh(access));
            }
            Kind::Group => {
                let group = std::mem::take(&mut state.open);
                push(&mut state.groups, group);
            }
            &Kind::Await(pending) => {
                if data.optional {
                    let ordered = state.groups.iter().flatten().map(|entry| (node, entry.access as AccessId));
                    self.found.ordered.extend(ordered);
                }
                Self::complete(&mut state.groups, pending, &mut state.pending);
            }
            Kind::Fly(reads) => {
                let mut set = Set::new();
                for &access in reads {
                    self.check(access, &state);
                    add(&mut set, Self::fresh(access));
                }
                push(&mut state.products, set);
            }
            &Kind::Land(pending) => Self::complete(&mut state.products, pending, &mut state.pending),
            &Kind::Send(access) => {
                self.check(access, &state);
                push(&mut state.stores, vec![Self::fresh(access)]);
            }
            &Kind::Sent(pending) => Self::complete(&mut state.stores, pending, &mut state.pending),
            &Kind::Rounds(body, once) => return self.rounds(data.op, body, once, state),
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

    fn fresh(access: AccessId) -> Entry {
        Entry { access: access as u32, rounds: 0, crossed: u8::MAX, outer: false }
    }

    fn complete(queue: &mut Queue, pending: u32, into: &mut Set) {
        for done in queue.drain((pending as usize).min(queue.len())..) {
            unite(into, &done);
        }
    }

    fn rounds(&mut self, looped: Op, body: ListId, once: bool, entry: State) -> State {
        let depth = self.program.lists[body].depth;
        let accesses = &self.program.accesses;
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
            next.each(|entry| {
                let own = accesses[entry.access as usize].looped == Some(looped);
                entry.rounds = if own { (entry.rounds + 1).min(FAR) } else { entry.rounds };
                let inside = self.program.is_inside(self.program.node_of[entry.access as usize], self.holder(body));
                if inside && !own {
                    entry.rounds = FAR;
                }
                entry.crossed = entry.crossed.min(depth);
            });
            if !before.merge(&next) {
                if !once {
                    exit.merge(&entry);
                }
                exit.each(|entry| {
                    if accesses[entry.access as usize].looped == Some(looped) {
                        entry.rounds = FAR;
                    }
                });
                return exit;
            }
        }
    }

    fn holder(&self, body: ListId) -> NodeId {
        self.program.lists[body].parent.unwrap_or_else(|| bug!("a loop's body that no loop holds"))
    }

    /// Whether the loop of a body is left from the end of a round: no exit leaves it.
    fn counts(&self, body: ListId) -> bool {
        self.program.counted.contains(&body)
    }

    fn roles(&mut self, lists: &[ListId], state: State) -> State {
        let mut inner = state;
        inner.each(|entry| entry.outer = true);
        self.in_role = true;
        let mut end = State::default();
        for &list in lists {
            let mut after = self.list(list, inner.clone());
            let past = std::mem::take(&mut after.past);
            unite(&mut after.pending, &past);
            end.merge(&after);
        }
        self.in_role = false;
        end.each(|entry| entry.outer = false);
        end
    }

    /// Checks an access against everything that it may have to wait for.
    fn check(&mut self, access: AccessId, state: &State) {
        let then = &self.program.accesses[access];
        let under_way = state.groups.iter().chain(&state.products).chain(&state.stores).flatten().chain(&state.open);
        let all = state.pending.iter().map(|entry| (entry, false)).chain(under_way.map(|entry| (entry, true)));
        for (entry, under_way) in all {
            let first = &self.program.accesses[entry.access as usize];
            let rounds = (entry.rounds < FAR).then_some(i64::from(entry.rounds));
            let way = Way { rounds, looped: first.looped, crossed: entry.crossed };
            let need = match under_way {
                // Its own thread would not wait either.
                true => self.pairs.need_apart(first, then, way),
                false => self.pairs.need(first, then, way),
            };
            if let Some(need) = need {
                let first = entry.access as AccessId;
                self.found.hazards.push(Hazard { need, under_way, outer: entry.outer, first, then: access });
            }
        }
    }
}
