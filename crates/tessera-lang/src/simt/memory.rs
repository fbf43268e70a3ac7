//! Calls that declare memory or touch it: allocations, atomics, asynchronous copies, fragments.

use tessera_ir::attrs::{AtomicMode, MemoryOrder};
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::env::Item;
use super::functions::Function;
use super::program::{Allocation, Expression, ExpressionKind, Memory, Place, Role, Space, Statement};
use super::value::{self, At};
use super::{Check, Res, ordered};
use crate::ast::{Expr, ExprKind};
use crate::diagnostics::id;
use crate::fixed::Fixed;
use crate::promote::dtype_name;

/// Side of a fragment.
const FRAGMENT: u32 = 16;

impl Check<'_> {
    pub(super) fn allocate(&mut self, space: Space, element: Option<&Expr>, shape: &[&Expr], span: Span) -> Res<Item> {
        let dtype = match element {
            Some(expr) => {
                let at = self.at(expr)?;
                dtype_of(&at)?
            }
            None => DType::F32,
        };
        let what = match space {
            Space::Shared => "shared memory",
            Space::Register => "registers",
            Space::Fragment(_) => "a fragment",
        };
        if self.branches > 0 || self.loops > 0 {
            return Err(Box::new(
                Diagnostic::error(id::SHARED_MEMORY, span, format!("{what} can't be allocated in a branch or loop"))
                    .help("allocate at the top of the kernel: memory lives as long as the block"),
            ));
        }
        let mut extents = Vec::new();
        for expr in shape {
            let value = self.fixed(expr, "the size of an allocation")?;
            let sizes = match &value {
                Fixed::Tuple(items) | Fixed::List(items) => items.to_vec(),
                _ => vec![value.clone()],
            };
            for size in sizes {
                match size.as_int().and_then(|size| u32::try_from(size).ok()).filter(|size| (1..=1 << 24).contains(size)) {
                    Some(size) => extents.push(size),
                    None => {
                        return Err(Box::new(
                            Diagnostic::error(id::SHAPE, expr.span, "a size is a positive integer")
                                .label(format!("this is {}", size.describe())),
                        ));
                    }
                }
            }
        }
        match space {
            Space::Fragment(Role::Places) if !matches!(dtype, DType::I32 | DType::U32) => {
                return Err(Box::new(
                    Diagnostic::error(id::MMA_TYPE, span, "places are words of 32 bits, one for each row")
                        .label(format!("this holds {}", dtype_name(dtype)))
                        .help("write `tile.fragment[int32](\"places\")`"),
                ));
            }
            Space::Fragment(Role::Places) => extents = vec![FRAGMENT, 1],
            Space::Fragment(Role::A | Role::B | Role::Accumulator) => extents = vec![FRAGMENT, FRAGMENT],
            Space::Shared | Space::Register if extents.is_empty() => {
                return Err(Box::new(
                    Diagnostic::error(id::SHAPE, span, "an allocation needs a size").help("write `tile.alloc_shared[fp32](128)`"),
                ));
            }
            Space::Shared | Space::Register => {}
        }
        self.allocations.push(Allocation { name: String::new(), space, dtype, shape: extents, span });
        let limits = self.arch.limits();
        let used = |wanted: Space| -> u128 {
            self.allocations
                .iter()
                .filter(|own| own.space == wanted)
                .map(|own| own.shape.iter().map(|&n| u128::from(n)).product::<u128>() * own.dtype.unpacked_bytes() as u128)
                .sum()
        };
        let (bytes, limit) = match space {
            Space::Shared => (used(Space::Shared), u128::from(limits.shared_per_block)),
            Space::Register => (used(Space::Register), 4 * u128::from(limits.registers_per_thread)),
            Space::Fragment(_) => (0, 0),
        };
        if bytes > limit {
            return Err(Box::new(
                Diagnostic::error(
                    id::SHARED_MEMORY,
                    span,
                    format!("{what} of {bytes} bytes, all allocations together, are too much"),
                )
                .label("the limit is passed here")
                .note(format!("{} has {limit} bytes", self.arch)),
            ));
        }
        Ok(Item::Array(Memory::Allocation(self.allocations.len() - 1)))
    }

    /// What an atomic works on: `x[i]`, or an array alone for its first element; yields how many values that took.
    pub(super) fn target(
        &mut self,
        group: &[&Expr],
        values: &[&Expr],
        wanted: usize,
        name: &str,
        span: Span,
    ) -> Res<(Place, usize)> {
        let Some(target) = group.first() else {
            return Err(Box::new(Diagnostic::error(id::CALL, span, format!("`tile.{name}` misses its target"))));
        };
        if let ExprKind::Subscript(base, index) = &target.kind {
            return Ok((self.place(base, index, target.span)?, 0));
        }
        let at = self.at(target)?;
        let Item::Array(memory) = at.0 else {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, at.1, format!("`tile.{name}` updates an element of an array"))
                    .label(format!("this is {}", at.0.describe()))
                    .help("pass an element `x[i]`, or an array for its first one"),
            ));
        };
        if values.len() == wanted + 1 {
            let items = self.indices(values[0])?;
            return Ok((self.element_at(memory, &items, values[0].span)?, 1));
        }
        let dtype = self.array(memory).0;
        let zero = value::constant(crate::number::Num::Int(0), DType::I32, at.1)?;
        let index = vec![zero; self.shape(memory).len()];
        Ok((Place { memory, dtype, index, order: MemoryOrder::Weak, scope: None, span: at.1 }, 0))
    }

    pub(super) fn atomic(&mut self, function: Function, name: &str, bound: &[Vec<&Expr>], span: Span) -> Res<Item> {
        let wanted = if function == Function::AtomicCas { 2 } else { 1 };
        let values = bound.get(1).map_or(&[][..], Vec::as_slice);
        if values.len() < wanted || values.len() > wanted + 1 {
            return Err(Box::new(
                Diagnostic::error(
                    id::CALL,
                    span,
                    format!("`tile.{name}` takes a target and {wanted} value{}", if wanted == 1 { "" } else { "s" }),
                )
                .label(format!("{} given", values.len()))
                .help(format!("write `tile.{name}(x[i], ...)`")),
            ));
        }
        let (mut place, taken) = self.target(&bound[0], values, wanted, name, span)?;
        if values.len() - taken != wanted {
            return Err(Box::new(Diagnostic::error(id::CALL, span, format!("`tile.{name}` got an element and an index"))));
        }
        let dtype = place.dtype;
        let bitwise = matches!(function, Function::AtomicAnd | Function::AtomicOr | Function::AtomicXor);
        if dtype == DType::B1 || dtype.bits() < 8 || bitwise && !dtype.is_integer() {
            return Err(Box::new(
                Diagnostic::error(id::ATOMIC_TYPE, span, format!("`tile.{name}` has no form for {}", dtype_name(dtype)))
                    .also(place.span, "an element of this array"),
            ));
        }
        if matches!(place.memory, Memory::Allocation(at) if self.allocations[at].space != Space::Shared) {
            return Err(Box::new(
                Diagnostic::error(id::MEMORY_MODEL, span, "an atomic works on memory that threads share")
                    .also(place.span, "this belongs to one thread"),
            ));
        }
        self.order(&mut place, &bound[2..], ordered::UPDATES, MemoryOrder::Relaxed)?;
        let mut given = Vec::new();
        for expr in &values[taken..] {
            let at = self.at(expr)?;
            given.push(self.element(&at, dtype)?);
        }
        let mode = match function {
            Function::AtomicAdd if dtype.is_float() => AtomicMode::AddF,
            Function::AtomicAdd => AtomicMode::Add,
            Function::AtomicMax if dtype.is_float() => AtomicMode::MaxF,
            Function::AtomicMax if dtype.is_signed() => AtomicMode::Max,
            Function::AtomicMax => AtomicMode::UMax,
            Function::AtomicMin if dtype.is_float() => AtomicMode::MinF,
            Function::AtomicMin if dtype.is_signed() => AtomicMode::Min,
            Function::AtomicMin => AtomicMode::UMin,
            Function::AtomicAnd => AtomicMode::And,
            Function::AtomicOr => AtomicMode::Or,
            Function::AtomicXor => AtomicMode::Xor,
            _ => AtomicMode::Xchg,
        };
        let place = Box::new(place);
        let kind = match (function, given.as_slice()) {
            (Function::AtomicCas, [expected, desired]) => {
                ExpressionKind::CompareSwap(place, Box::new([expected.clone(), desired.clone()]))
            }
            (_, [value, ..]) => ExpressionKind::Atomic(mode, place, Box::new(value.clone())),
            (_, []) => return Ok(Item::Fixed(Fixed::None)),
        };
        let old = value::readable(Expression { kind, dtype, uniform: false, span });
        Ok(Item::Value(self.now(old)))
    }

    pub(super) fn copy_async(&mut self, bound: &[Vec<&Expr>], span: Span) -> Res<Item> {
        let (destination, _) = self.target(&bound[0], &[], 0, "cp_async", span)?;
        let (source, _) = self.target(&bound[1], &[], 0, "cp_async", span)?;
        let to_shared = matches!(destination.memory, Memory::Allocation(at) if self.allocations[at].space == Space::Shared);
        if !to_shared || !matches!(source.memory, Memory::Param(_)) {
            return Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, span, "`tile.cp_async` copies from an array to shared memory")
                    .also(destination.span, "to here")
                    .also(source.span, "from here"),
            ));
        }
        if destination.dtype != source.dtype {
            return Err(Box::new(
                Diagnostic::error(id::PROMOTION, span, "an asynchronous copy does not convert")
                    .also(destination.span, format!("holds {}", dtype_name(destination.dtype)))
                    .also(source.span, format!("holds {}", dtype_name(source.dtype))),
            ));
        }
        let count = match bound.get(2).and_then(|group| group.first()) {
            Some(expr) => self.count_of(expr, "the number of elements", 1..=16)?,
            None => 1,
        };
        let bits = count * source.dtype.bits();
        if !matches!(bits, 32 | 64 | 128) {
            return Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, span, "an asynchronous copy moves 4, 8 or 16 bytes")
                    .label(format!("this is {count} of {}", dtype_name(source.dtype))),
            ));
        }
        self.out.push(Statement::CopyAsync { destination, source, count });
        Ok(Item::Fixed(Fixed::None))
    }

    pub(super) fn fragment(&mut self, function: Function, bound: &[Vec<&Expr>], span: Span) -> Res<Item> {
        let mut statement = None;
        let exprs: Vec<&Expr> = bound.iter().filter_map(|group| group.first().copied()).collect();
        match (function, exprs.as_slice()) {
            (Function::FragmentFill, [fragment, value]) => {
                let (position, _) = self.fragment_at(fragment)?;
                let at = self.at(value)?;
                let value = self.element(&at, self.allocations[position].dtype)?;
                self.filled.insert(position);
                statement = Some(Statement::FragmentFill(position, value));
            }
            (Function::FragmentLoad, [fragment, source]) => {
                let (position, _) = self.fragment_at(fragment)?;
                let (place, _) = self.target(&[source], &[], 0, "fragment_load", span)?;
                self.fragment_fits(position, &place, span)?;
                self.filled.insert(position);
                statement = Some(Statement::FragmentLoad(position, place));
            }
            (Function::FragmentStore, [destination, fragment]) => {
                let (position, _) = self.fragment_at(fragment)?;
                let (place, _) = self.target(&[destination], &[], 0, "fragment_store", span)?;
                self.fragment_fits(position, &place, span)?;
                self.takes(&[position], &[fragment])?;
                statement = Some(Statement::FragmentStore(place, position));
            }
            (Function::FragmentMma, [_, _, _]) => {
                let [sum, a, b] = self.parts(&exprs, [Role::Accumulator, Role::A, Role::B], "fragment_mma(accumulator, a, b)")?;
                self.multiplies([sum, a, b], span)?;
                self.takes(&[sum, a, b], &exprs)?;
                statement = Some(Statement::FragmentMma(sum, a, b));
            }
            (Function::FragmentMmaSparse, [_, _, _, _, _]) => {
                let roles = [Role::Accumulator, Role::A, Role::Places, Role::B, Role::B];
                let [accumulator, a, places, b, below] =
                    self.parts(&exprs, roles, "fragment_mma_sparse(accumulator, a, places, b, b_below)")?;
                self.multiplies([accumulator, a, b], span)?;
                self.multiplies([accumulator, a, below], span)?;
                self.takes(&[accumulator, a, places, b, below], &exprs)?;
                statement = Some(Statement::FragmentMmaSparse { accumulator, a, places, b: [b, below] });
            }
            _ => {}
        }
        self.out.extend(statement);
        Ok(Item::Fixed(Fixed::None))
    }

    /// Elements of fragments are taken, which something must have put there; in a loop an earlier round may have.
    fn takes(&mut self, positions: &[usize], exprs: &[&Expr]) -> Res<()> {
        for (&position, expr) in positions.iter().zip(exprs) {
            if self.filled.contains(&position) {
                continue;
            }
            if self.loops == 0 {
                return Err(Box::new(nothing_in(expr.span)));
            }
            self.unfilled.push((position, expr.span));
        }
        Ok(())
    }

    /// Refuses what takes elements of a fragment that nothing is put into.
    pub(super) fn all_filled(&self) -> Res<()> {
        let empty = self.unfilled.iter().find(|(position, _)| !self.filled.contains(position));
        empty.map_or(Ok(()), |&(_, span)| Err(Box::new(nothing_in(span))))
    }

    /// The fragments of a product, each of which must be what it is there.
    fn parts<const N: usize>(&mut self, exprs: &[&Expr], roles: [Role; N], right: &str) -> Res<[usize; N]> {
        let mut parts = [0; N];
        for ((part, wanted), expr) in parts.iter_mut().zip(roles).zip(exprs) {
            let (position, role) = self.fragment_at(expr)?;
            if role != wanted {
                return Err(Box::new(
                    Diagnostic::error(id::MMA_TYPE, expr.span, format!("the fragment here must be {wanted:?}").to_lowercase())
                        .help(format!("write `tile.{right}`")),
                ));
            }
            *part = position;
        }
        Ok(parts)
    }

    /// Refuses fragments whose types no product has.
    fn multiplies(&self, [sum, a, b]: [usize; 3], span: Span) -> Res<()> {
        let [sum, a, b] = [sum, a, b].map(|position| self.allocations[position].dtype);
        let halves = a == b && matches!(a, DType::F16 | DType::BF16) && (sum == DType::F32 || sum == a && a == DType::F16);
        let bytes = a == b && matches!(a, DType::I8 | DType::U8) && sum == DType::I32;
        if halves || bytes {
            return Ok(());
        }
        let product = format!("no fragment product of {} and {} sums in {}", dtype_name(a), dtype_name(b), dtype_name(sum));
        Err(Box::new(Diagnostic::error(id::MMA_TYPE, span, product).help("fp16 and bf16 sum in fp32, int8 in int32")))
    }

    fn fragment_at(&mut self, expr: &Expr) -> Res<(usize, Role)> {
        let at = self.at(expr)?;
        if let Item::Array(Memory::Allocation(position)) = at.0
            && let Space::Fragment(role) = self.allocations[position].space
        {
            return Ok((position, role));
        }
        Err(Box::new(
            Diagnostic::error(id::ARGUMENT_TYPE, at.1, "a fragment is wanted here")
                .label(format!("this is {}", at.0.describe()))
                .help("make one with `tile.fragment[fp16](\"a\")`"),
        ))
    }

    fn fragment_fits(&self, position: usize, place: &Place, span: Span) -> Res<()> {
        if matches!(place.memory, Memory::Allocation(at) if self.allocations[at].space != Space::Shared) {
            return Err(Box::new(
                Diagnostic::error(id::MMA_TYPE, span, "a fragment moves to and from memory that threads share")
                    .also(place.span, "this is each thread's own")
                    .help("use an array argument or `tile.alloc_shared`"),
            ));
        }
        let own = self.allocations[position].dtype;
        if own == place.dtype && place.index.len() >= 2 {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(id::MMA_TYPE, span, "a fragment moves to and from matrices of its own type")
                .also(place.span, format!("{} axes of {}", place.index.len(), dtype_name(place.dtype)))
                .note(format!("the fragment holds {}", dtype_name(own))),
        ))
    }
}

/// The dtype that an argument is.
pub(super) fn dtype_of(at: &At) -> Res<DType> {
    match &at.0 {
        Item::Fixed(Fixed::DType(dtype)) => Ok(*dtype),
        other => Err(Box::new(
            Diagnostic::error(id::ARGUMENT_TYPE, at.1, "a dtype is wanted here")
                .label(format!("this is {}", other.describe()))
                .help("write a dtype such as `fp32`, or a dtype variable of the kernel's annotations"),
        )),
    }
}

fn nothing_in(fragment: Span) -> Diagnostic {
    Diagnostic::error(id::MAYBE_UNDEFINED, fragment, "nothing has been put into this fragment")
        .help("`tile.fragment_fill(f, 0)` or `tile.fragment_load` puts elements there")
}
