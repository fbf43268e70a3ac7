//! What a function does to memory that its threads share, and where threads meet and wait: all that the analysis looks at.
//!
//! A [`Program`] has the function's structure, with lists of nodes for blocks; operations that touch nothing have none. An operation whose threads
//! exchange elements through a buffer writes it, has all threads meet, and reads it.
//!
//! ```text
//! for ... {                                              Round [
//!   tile.wait_group {pending=1}                            Await(1)
//!   tile.barrier                                           Meet
//!   %acc = tile.mma_shared %a, %b, %acc                     Touch(read %a), Touch(read %b)
//!   tile.copy_async %view, [%k], %c                         Start(write %c)
//!   tile.commit_group                                       Group
//! ```
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::uniformity::{UniformityMap, is_per_thread};
use tessera_ir::{Block, Func, Level, Op, Value, bug};

use super::place::Access;
use super::read::Reader;

/// A position in [`Program::nodes`].
pub(super) type NodeId = usize;
/// A position in [`Program::lists`].
pub(super) type ListId = usize;
/// A position in [`Program::accesses`].
pub(super) type AccessId = usize;

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Threads touch memory.
    Touch(AccessId),
    /// All threads of the team meet; inside an operation (`None`) or at one that may go.
    Meet,
    /// Threads start to copy into a buffer.
    Start(AccessId),
    /// Each thread's copies so far become a group.
    Group,
    /// All but so many groups have arrived.
    Await(u32),
    /// The tensor cores start to read.
    Fly(SmallVec<[AccessId; 2]>),
    /// All but so many products are done.
    Land(u32),
    /// The copy engine starts to read a buffer.
    Send(AccessId),
    /// All but so many of these have read.
    Sent(u32),
    /// Rounds of a loop, and whether there is at least one.
    Rounds(ListId, bool),
    /// One of two ways.
    Ways(SmallVec<[ListId; 2]>),
    /// Roles that run at the same time.
    Roles(Vec<ListId>),
    /// The next round, the end of the loop, the end of the program.
    Next,
    Leave,
    End,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) op: Op,
    pub(super) kind: Kind,
    pub(super) list: ListId,
    /// All threads of the team come here, so a barrier may stand before it.
    pub(super) together: bool,
    /// It may be taken out: a barrier or a wait of its own.
    pub(super) optional: bool,
}

/// The nodes of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) nodes: Vec<NodeId>,
    /// The node that it belongs to.
    pub(super) parent: Option<NodeId>,
    pub(super) block: Option<Block>,
    /// Loops around it.
    pub(super) depth: u8,
}

/// A function as the analysis sees it.
pub(super) struct Program {
    pub(super) nodes: Vec<Node>,
    pub(super) lists: Vec<List>,
    pub(super) accesses: Vec<Access>,
    /// The node of each access.
    pub(super) node_of: Vec<NodeId>,
    /// How many loops are around the definition of each value that an access asks about.
    pub(super) depth: FxHashMap<Value, u8>,
    pub(super) per_thread: bool,
    /// Bodies of loops that are left from the end of a round.
    pub(super) counted: Vec<ListId>,
}

impl Program {
    /// The program of a Tile function.
    pub(super) fn of(func: &Func) -> Program {
        debug_assert_eq!(func.level, Level::Tile);
        let uniform = UniformityMap::new(func);
        let empty = Program {
            nodes: Vec::new(),
            lists: Vec::new(),
            accesses: Vec::new(),
            node_of: Vec::new(),
            depth: FxHashMap::default(),
            per_thread: is_per_thread(func),
            counted: Vec::new(),
        };
        let mut program = Reader::new(func, &uniform, empty).read();
        let depths = program.lists.iter().filter_map(|list| Some((list.block?, list.depth))).collect::<FxHashMap<_, _>>();
        program.depth = depths_of(func, &depths);
        program
    }

    /// The lists around a node, innermost first, with the node's ancestor in each.
    pub(super) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(node), |&node| self.lists[self.nodes[node].list].parent)
    }

    /// Whether a node lies in what another one holds.
    pub(super) fn is_inside(&self, node: NodeId, outer: NodeId) -> bool {
        self.ancestors(node).any(|ancestor| ancestor == outer)
    }

    /// Puts a barrier before a node.
    pub(super) fn insert(&mut self, before: NodeId) -> NodeId {
        let node = Node { kind: Kind::Meet, optional: true, together: true, ..self.nodes[before].clone() };
        let (list, id) = (node.list, self.nodes.len());
        self.nodes.push(node);
        let nodes = &mut self.lists[list].nodes;
        let place = nodes.iter().position(|&node| node == before);
        let place = place.unwrap_or_else(|| bug!("a node outside of its list"));
        nodes.insert(place, id);
        id
    }

    /// Takes a node out.
    pub(super) fn remove(&mut self, node: NodeId) {
        self.lists[self.nodes[node].list].nodes.retain(|&other| other != node);
    }

    /// How often a node runs, roughly.
    pub(super) fn weight(&self, node: NodeId) -> u64 {
        1 << (4 * self.lists[self.nodes[node].list].depth.min(12))
    }
}

/// Loops around the definition of each value.
fn depths_of(func: &Func, blocks: &FxHashMap<Block, u8>) -> FxHashMap<Value, u8> {
    let mut depths = FxHashMap::default();
    for (&block, &depth) in blocks.iter().filter(|&(_, &depth)| depth > 0) {
        let defined = func.blocks[block].ops.iter().flat_map(|&op| func.ops[op].results.iter());
        for &value in func.blocks[block].args.iter().chain(defined) {
            depths.insert(value, depth);
        }
    }
    depths
}
