//! Memory that several devices share: arrays at addresses, and accesses that other threads see in order.
//!
//! ```text
//! theirs = tile.array_at[int32](peers[p])                              the address of another device's array
//! tile.store(theirs[i], n, order="release", scope="system")            what this thread did before is seen by who
//! while tile.load(mine[i], order="acquire", scope="system") < n: ...   reads this and comes after it
//! ```

use tessera_ir::attrs::{MemoryOrder, MemoryScope};
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::env::Item;
use super::program::{Addressed, Memory, Place, Space, Statement};
use super::{Check, Res};
use crate::ast::Expr;
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::promote::dtype_name;

/// What orders a load, a store, an update.
const LOADS: &[(&str, MemoryOrder)] = &[("relaxed", MemoryOrder::Relaxed), ("acquire", MemoryOrder::Acquire)];
const STORES: &[(&str, MemoryOrder)] = &[("relaxed", MemoryOrder::Relaxed), ("release", MemoryOrder::Release)];
pub(super) const UPDATES: &[(&str, MemoryOrder)] = &[
    ("relaxed", MemoryOrder::Relaxed),
    ("acquire", MemoryOrder::Acquire),
    ("release", MemoryOrder::Release),
    ("acq_rel", MemoryOrder::AcqRel),
];
const SCOPES: &[(&str, MemoryScope)] =
    &[("block", MemoryScope::Block), ("device", MemoryScope::Device), ("system", MemoryScope::System)];
/// The widest access: an alignment beyond it says nothing more.
const MOST_ALIGN: u32 = 256;

impl Check<'_> {
    /// `tile.array_at[dtype](address)`: the elements from an address on.
    pub(super) fn array_at(&mut self, element: Option<&Expr>, bound: &[Vec<&Expr>], span: Span) -> Res<Item> {
        let (Some(element), Some(address)) = (element, bound[0].first()) else { return Ok(Item::Fixed(Fixed::None)) };
        let at = self.at(element)?;
        let dtype = super::memory::dtype_of(&at)?;
        if dtype.bits() < 8 {
            let message = format!("elements of {} have no address", dtype_name(dtype));
            return Err(Box::new(Diagnostic::error(id::ARGUMENT_TYPE, at.1, message)));
        }
        let given = self.at(address)?;
        let value = match &given.0 {
            Item::Value(value) if value.dtype == DType::I64 => value.clone(),
            other => {
                return Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, given.1, "an address is an int64 value")
                        .label(format!("this is {}", other.describe()))
                        .help("keep addresses in an int64 array"),
                ));
            }
        };
        let own = dtype.unpacked_bytes() as u32;
        let align = match bound.get(1).and_then(|group| group.first()) {
            Some(expr) => self.count_of(expr, "what divides the address", own..=MOST_ALIGN)?,
            None => own,
        };
        // What it is now: a variable may hold another address later.
        let (local, _) = self.unnamed(DType::I64, value.uniform, span);
        self.out.push(Statement::Assign(local, value));
        self.addressed.push(Addressed { local, dtype, align });
        Ok(Item::Array(Memory::Addressed(self.addressed.len() - 1)))
    }

    /// `tile.load(x[i], order=..., scope=...)`
    pub(super) fn load_ordered(&mut self, bound: &[Vec<&Expr>], span: Span) -> Res<Item> {
        let place = self.ordered_place("load", bound, &bound[1..], LOADS, span)?;
        Ok(self.load(place, span))
    }

    /// `tile.store(x[i], value, order=..., scope=...)`
    pub(super) fn store_ordered(&mut self, bound: &[Vec<&Expr>], span: Span) -> Res<Item> {
        let place = self.ordered_place("store", bound, &bound[2..], STORES, span)?;
        let Some(value) = bound[1].first() else { return Ok(Item::Fixed(Fixed::None)) };
        let at = self.at(value)?;
        self.store(place, &at)?;
        Ok(Item::Fixed(Fixed::None))
    }

    fn ordered_place(
        &mut self,
        name: &str,
        bound: &[Vec<&Expr>],
        words: &[Vec<&Expr>],
        orders: &[(&str, MemoryOrder)],
        span: Span,
    ) -> Res<Place> {
        let (mut place, _) = self.target(&bound[0], &[], 0, name, span)?;
        self.order(&mut place, words, orders, MemoryOrder::Weak)?;
        if place.order != MemoryOrder::Weak && !matches!(place.dtype.bits(), 8 | 16 | 32 | 64) {
            let message = format!("`tile.{name}` has no ordered form for {}", dtype_name(place.dtype));
            return Err(Box::new(Diagnostic::error(id::ATOMIC_TYPE, place.span, message)));
        }
        Ok(place)
    }

    /// Reads the words for an access's order and scope; without any it is `implied`.
    pub(super) fn order(
        &mut self,
        place: &mut Place,
        words: &[Vec<&Expr>],
        orders: &[(&str, MemoryOrder)],
        implied: MemoryOrder,
    ) -> Res<()> {
        let written = |at: usize| words.get(at).and_then(|group| group.first().copied());
        place.order = match written(0) {
            Some(expr) => self.word(expr, "order", orders)?,
            None => implied,
        };
        // Elements that different threads store in shared memory, or of which any may stay, need no barriers between them.
        let is_relaxed_store = orders == STORES && place.order == MemoryOrder::Relaxed && written(1).is_none();
        if let Memory::Allocation(at) = place.memory
            && let Some(expr) = written(0).or(written(1))
            && !(is_relaxed_store && self.allocations[at].space == Space::Shared)
        {
            return Err(Box::new(
                Diagnostic::error(
                    id::MEMORY_MODEL,
                    expr.span,
                    "only arrays in global memory are accessed in an order of their own",
                )
                .also(place.span, "this is memory of the block")
                .help(
                    "`tile.barrier()` orders what the threads of a block do; stores that need no order are `order=\"relaxed\"`",
                ),
            ));
        }
        let Some(expr) = written(1) else { return Ok(()) };
        place.scope = Some(self.word(expr, "scope", SCOPES)?);
        if place.order == MemoryOrder::Weak {
            return Err(Box::new(
                Diagnostic::error(id::MEMORY_MODEL, expr.span, "a scope says among whom an order holds")
                    .label("there is no order")
                    .help("give the order, too: `order=\"relaxed\"`"),
            ));
        }
        Ok(())
    }

    fn word<T: Copy>(&mut self, expr: &Expr, what: &str, words: &[(&str, T)]) -> Res<T> {
        let value = self.fixed(expr, "the order of an access")?;
        if let Fixed::Str(text) = &value
            && let Some((_, found)) = words.iter().find(|(word, _)| **word == **text)
        {
            return Ok(*found);
        }
        let names: Vec<String> = words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
        Err(Box::new(
            Diagnostic::error(id::MEMORY_MODEL, expr.span, format!("the {what} here is one of {}", names.join(", ")))
                .label(format!("this is {}", value.describe())),
        ))
    }
}
