//! Typed indices into arenas: an id of one kind can't be used to look up another.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An index into an [`Arena`] of its own kind.
pub trait EntityId: Copy + Eq {
    /// The id of the `index`-th entry.
    fn new(index: usize) -> Self;
    /// The position in the arena.
    fn index(self) -> usize;
}

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $crate::entity::EntityId for $name {
            fn new(index: usize) -> Self {
                $name(u32::try_from(index).expect("an arena holds fewer than 2^32 entries"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use entity;

/// A growing list whose entries are named by ids; nothing is ever removed from it, only unlinked.
#[derive(Clone, Debug)]
pub struct Arena<I, T> {
    entries: Vec<T>,
    id: PhantomData<I>,
}

impl<I: EntityId, T> Arena<I, T> {
    /// An empty arena.
    pub const fn new() -> Self {
        Arena { entries: Vec::new(), id: PhantomData }
    }

    /// Adds an entry and names it.
    pub fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::new(self.entries.len() - 1)
    }

    /// How many entries there are, unlinked ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every id, in order of creation.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map(I::new)
    }
}

impl<I: EntityId, T> Default for Arena<I, T> {
    fn default() -> Self {
        Arena::new()
    }
}

impl<I: EntityId, T> Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

impl<I: EntityId, T> IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.index()]
    }
}
