//! What an operation does to memory: which operand it reads or writes, in which memory, through which proxy, and whether it goes
//! on by itself. It is said in the operation's row, and passes ask for it there; none of them lists operations.
//!
//! ```text
//! LoadShared = "tile.load_shared" (buffer) {} -> One : Special, Read [read(shared, buffer, to(result))], [Together];
//! CopyAsync = "tile.copy_async" (view, index: many, buffer) { .. } -> None
//!     : Special, Write [read(global, view, at(index), copies), write(shared, buffer, copies)], [Together];
//! AtomicElement = "tile.atomic_element" (value, buffer, indices: many) { .. } -> One
//!     : Special, Write [update(shared, buffer, at(indices), from(value))];
//! ```
//!
//! | entry | says |
//! |---|---|
//! | `read(M, operand)`, `write(M, operand)` | what the operand stands for is read, or written |
//! | `update(M, operand)` | it is read and written at once: atomically where the memory is an operand's |
//! | `make(M)` | the result is new memory |
//! | `order(M)` | accesses before and after keep their order, whatever they touch |
//!
//! `M` is one of [`Space`]'s, or several (`shared | registers`): then the operand's type says which one, and an operand that is a value and
//! no place is not touched (a factor of a product may be either). Without an operand all of the memory is meant. What follows the operand:
//!
//! | word | says |
//! |---|---|
//! | `at(indices)` | not the whole: the tile of a view at an index, or elements of a buffer from the one that each thread names |
//! | `to(result)`, `from(value)` | what the elements become, or are before: its layout says which thread touches which of them |
//! | `copies`, `stores`, `products`, `loads` | it goes on after the operation, in that [`Queue`] |
//! | `async_proxy` | by the asynchronous proxy, although it is done when the operation is |
//!
//! Rows of the classes `Read`, `Write` and `Observable` have a list, which may be empty only for the last; those of other classes touch
//! nothing. A list that names an operand which the row does not have does not compile.

use smallvec::SmallVec;

use crate::func::{Func, OpData, Value};
use crate::types::{Elem, Type};

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Memory of the device, behind views, pointers and whole operands.
    Global,
    /// Shared memory of the block: buffers.
    Shared,
    /// Arrays of each thread's own.
    Registers,
    /// The barriers of a ring.
    Ring,
}

impl Space {
    /// Where the memory lies that a value of this type stands for; `None` for what is no memory.
    pub fn of(ty: &Type) -> Option<Space> {
        match ty {
            Type::TensorView(_) | Type::TileView(_) | Type::Operand(_) => Some(Space::Global),
            Type::Tile(_) | Type::Distributed(_) => {
                let points = ty.as_tile().is_some_and(|tile| matches!(tile.elem, Elem::Ptr(_)));
                points.then_some(Space::Global)
            }
            Type::Shared(_) => Some(Space::Shared),
            Type::Registers(_) => Some(Space::Registers),
            Type::Ring(_) => Some(Space::Ring),
            Type::InFlight(_) | Type::Cursor | Type::Token | Type::Tensor(_) => None,
        }
    }
}

/// What an effect is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Reads what is there.
    Read,
    /// Writes, whatever was there.
    Write,
    /// Reads and writes at once.
    Update,
    /// Makes memory, which the result stands for.
    Make,
    /// Keeps accesses before it apart from those after it.
    Order,
}

/// Through what an access reaches memory (PTX ISA, "Proxies"). Accesses through different ones need a fence between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Ordinary accesses of threads, `cp.async` among them.
    Generic,
    /// The copy engine and products of warpgroups.
    Async,
}

/// What goes on after the operation that started it, until it has been waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// Copies that threads started, in groups that `tile.commit_group` makes; `tile.wait_group` waits.
    Copies,
    /// Copies out of a buffer by the copy engine; `tile.tma_store_wait` waits.
    Stores,
    /// Products of the tensor cores; `tile.wgmma_wait` waits.
    Products,
    /// Copies into a slot by the copy engine; who waits for the slot waits for them.
    Loads,
}

/// What elements become when they are read, or are before they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The results, tokens aside.
    Results,
    /// The operand at a position.
    Operand(usize),
}

/// One entry of a row's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What it is.
    pub does: Does,
    /// The memories in which it may be.
    pub spaces: &'static [Space],
    /// The position of the operand that says where; `None` for all of the memory.
    pub operand: Option<usize>,
    /// The position of the operand that chooses what is touched of it; `None` where that is all.
    pub at: Option<usize>,
    /// The values that its elements become, or are before.
    pub moved: Option<Moved>,
    /// Through what.
    pub proxy: Proxy,
    /// What it goes on in after the operation.
    pub queue: Option<Queue>,
}

impl Effect {
    /// It needs what was there before.
    pub const fn reads(&self) -> bool {
        matches!(self.does, Does::Read | Does::Update)
    }

    /// It changes what is there.
    pub const fn writes(&self) -> bool {
        matches!(self.does, Does::Write | Does::Update)
    }

    /// Writes every element of what its operand stands for.
    pub const fn replaces(&self) -> bool {
        matches!(self.does, Does::Write) && self.at.is_none()
    }

    // What the words of a row stand for.

    pub(crate) const fn new(does: Does, spaces: &'static [Space]) -> Effect {
        Effect { does, spaces, operand: None, at: None, moved: None, proxy: Proxy::Generic, queue: None }
    }

    pub(crate) const fn of(self, operands: &[&str], name: &str) -> Effect {
        Effect { operand: Some(position(operands, name)), ..self }
    }

    pub(crate) const fn at(self, operands: &[&str], name: &str) -> Effect {
        Effect { at: Some(position(operands, name)), ..self }
    }

    pub(crate) const fn to_results(self) -> Effect {
        Effect { moved: Some(Moved::Results), ..self }
    }

    pub(crate) const fn from(self, operands: &[&str], name: &str) -> Effect {
        Effect { moved: Some(Moved::Operand(position(operands, name))), ..self }
    }

    pub(crate) const fn copies(self) -> Effect {
        Effect { queue: Some(Queue::Copies), ..self }
    }

    pub(crate) const fn stores(self) -> Effect {
        Effect { queue: Some(Queue::Stores), ..self.async_proxy() }
    }

    pub(crate) const fn products(self) -> Effect {
        Effect { queue: Some(Queue::Products), ..self.async_proxy() }
    }

    pub(crate) const fn loads(self) -> Effect {
        Effect { queue: Some(Queue::Loads), ..self.async_proxy() }
    }

    pub(crate) const fn async_proxy(self) -> Effect {
        Effect { proxy: Proxy::Async, ..self }
    }
}

/// The position of an operand, found while the row is compiled.
const fn position(operands: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < operands.len() {
        if same(operands[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("an effect names an operand that the row does not have")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// A value that an operation touches memory by.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The place: a buffer or a part of one, a register array, a ring, a view, pointers.
    pub value: Value,
    /// Where that lies.
    pub space: Space,
    /// What happens to it.
    pub effect: &'static Effect,
}

impl Func {
    /// What an operation does to the memory that its operands stand for, in the order of its row. What it exchanges elements through
    /// ([`OpData::through`]) is not among it.
    pub fn touches(&self, data: &OpData) -> SmallVec<[Touch; 3]> {
        let mut found = SmallVec::new();
        for effect in data.kind.effects() {
            for &value in effect.operand.map_or(&[][..], |position| data.group(position)) {
                if let Some(space) = Space::of(self.ty(value)).filter(|space| effect.spaces.contains(space)) {
                    found.push(Touch { value, space, effect });
                }
            }
        }
        found
    }

    /// The values that a touch's elements become, or are before; without any, the elements are those behind the place itself.
    pub fn moved<'a>(&self, data: &'a OpData, touch: &Touch) -> &'a [Value] {
        match touch.effect.moved {
            Some(Moved::Results) => {
                let tokens = data.results.iter().rev().take_while(|&&result| *self.ty(result) == Type::Token).count();
                &data.results[..data.results.len() - tokens]
            }
            Some(Moved::Operand(position)) => data.group(position),
            None => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Effects, Row};
    use crate::graph::GraphOp;
    use crate::op::OpKind;
    use crate::schedule::ScheduleOp;
    use crate::tile::TileOp;

    fn rows() -> impl Iterator<Item = &'static Row> {
        ScheduleOp::ROWS.iter().chain(TileOp::ROWS).chain(GraphOp::ROWS)
    }

    /// An effect's operands are among the row's.
    #[test]
    fn operands_exist() {
        for row in rows() {
            for effect in row.memory {
                let moved = match effect.moved {
                    Some(Moved::Operand(position)) => Some(position),
                    Some(Moved::Results) | None => None,
                };
                let places = effect.operand.into_iter().chain(effect.at).chain(moved);
                places.for_each(|position| assert!(position < row.operands.len(), "{}", row.mnemonic));
                assert!(!effect.spaces.is_empty(), "{}", row.mnemonic);
                let everywhere = matches!(effect.does, Does::Make | Does::Order) || effect.spaces == [Space::Global];
                assert!(effect.operand.is_some() || everywhere, "{}: of what?", row.mnemonic);
            }
        }
    }

    /// The class, which most passes ask for, and the list say the same.
    #[test]
    fn classes_and_lists_agree() {
        for row in rows() {
            let does = |wanted: fn(&Effect) -> bool| row.memory.iter().any(wanted);
            let changes = does(|effect| effect.writes() || effect.does == Does::Make);
            match row.effects {
                Effects::Read => {
                    assert!(!row.memory.is_empty() && row.memory.iter().all(|e| e.does == Does::Read), "{}", row.mnemonic)
                }
                Effects::Write => assert!(changes, "{}", row.mnemonic),
                Effects::Observable => assert!(!does(|effect| effect.writes() && effect.operand.is_some()), "{}", row.mnemonic),
                Effects::Pure | Effects::MayTrap | Effects::Terminator | Effects::Regions => {
                    assert!(row.memory.is_empty(), "{}", row.mnemonic)
                }
            }
        }
    }

    /// Operations of threads that are given a place and do more than compute another one from it have an effect on it.
    #[test]
    fn places_have_effects() {
        const PLACES: [&str; 7] = ["buffer", "source", "target", "view", "pointer", "pointers", "ring"];
        for row in ScheduleOp::ROWS.iter().chain(TileOp::ROWS) {
            // A prefetch changes nothing that anybody could see.
            if matches!(row.effects, Effects::Pure | Effects::MayTrap) || row.mnemonic == "tile.prefetch" {
                continue;
            }
            for (position, operand) in row.operands.iter().enumerate() {
                let named = row.memory.iter().any(|effect| effect.operand == Some(position));
                assert!(named || !PLACES.contains(&operand.name), "{}: nothing said of `{}`", row.mnemonic, operand.name);
            }
        }
    }

    /// One operation's list, by which the words above can be read.
    #[test]
    fn words_of_a_row() {
        let kind = OpKind::from(TileOp::CopyAsyncElement { bytes: 4 });
        let [read, write] = kind.effects() else { panic!("{:?}", kind.effects()) };
        assert_eq!((read.does, read.spaces, read.operand, read.at), (Does::Read, &[Space::Global][..], Some(0), None));
        assert_eq!((write.does, write.spaces, write.operand, write.at), (Does::Write, &[Space::Shared][..], Some(1), Some(2)));
        assert_eq!((write.queue, write.proxy), (Some(Queue::Copies), Proxy::Generic));
        let kind = OpKind::from(TileOp::TmaStore {});
        assert!(kind.effects().iter().all(|effect| (effect.queue, effect.proxy) == (Some(Queue::Stores), Proxy::Async)));
    }
}
