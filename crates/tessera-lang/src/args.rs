//! What a kernel is compiled for: the kind of every argument, compile-time values and options.

use indexmap::IndexMap;
use smallvec::SmallVec;
use tessera_ir::{Extent, IndexType};
use tessera_types::DType;

/// A compile-time value of a kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstValue {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A tuple.
    Tuple(Vec<ConstValue>),
}

/// What is known about one argument when a kernel is compiled.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    /// An array in memory.
    Array {
        /// Element type.
        dtype: DType,
        /// Sizes; dynamic ones are passed at launch.
        shape: SmallVec<[Extent; 4]>,
        /// Strides in elements; dynamic ones are passed at launch.
        strides: SmallVec<[Extent; 4]>,
        /// What divides the base address, in bytes.
        align: u32,
        /// What divides every dynamic stride and the size of the axis of unit stride, in bytes.
        lines: u32,
        /// Type of sizes and strides.
        index: IndexType,
        /// True when no two elements share memory and no other argument overlaps.
        disjoint: bool,
    },
    /// A list of arrays of one type and rank.
    List {
        /// Element type.
        dtype: DType,
        /// Rank of every array.
        rank: u32,
        /// Type of sizes and strides.
        index: IndexType,
    },
    /// A tuple with an array in it; its items are arguments of the launch by names of their own, see [`item_name`](tessera_ir::item_name).
    Tuple(Vec<ArgType>),
    /// A scalar passed at launch.
    Scalar(DType),
    /// A value known now.
    Const(ConstValue),
    /// An array or a scalar of which more is known, in block programs.
    Stated {
        /// Which.
        of: Box<ArgType>,
        /// What the scalar, or the array's size along the axis of unit stride, is at most.
        most: Option<i64>,
        /// The argument before it that is an array of the same sizes and strides.
        like: Option<String>,
    },
}

impl ArgType {
    /// A row-major array of which only the rank and the unit stride of the last axis are known, aligned to 16 bytes.
    pub fn array(dtype: DType, rank: usize) -> ArgType {
        let mut strides: SmallVec<[Extent; 4]> = SmallVec::from_elem(Extent::Dynamic, rank);
        if let Some(last) = strides.last_mut() {
            *last = Extent::Static(1);
        }
        ArgType::Array {
            dtype,
            shape: SmallVec::from_elem(Extent::Dynamic, rank),
            strides,
            align: 16,
            lines: 16,
            index: IndexType::I32,
            disjoint: true,
        }
    }
}

/// Bytes of whole vectors.
const VECTOR_BYTES: u32 = 16;

/// Elements of a vector at most, but for one.
const ROOM: i64 = 15;

/// The smallest tile for which sizes within it are told apart: narrower ones are a vector or two a thread anyway.
const LEAST_TILE: i64 = 512;

/// States what is known anyway of lines that are no whole vectors: sizes and strides that are constants of the kernel, as the length of its rows is.
/// Rows of different arrays are then known to begin alike. `lies` gives the sizes and strides of each array, by its place among the arguments.
pub fn state_odd_lines(args: &mut [(String, ArgType)], lies: impl Fn(usize) -> Option<[Vec<i64>; 2]>) {
    let constants = constants(args);
    for (place, (_, ty)) in args.iter_mut().enumerate() {
        let ArgType::Array { shape, strides, lines, .. } = ty else { continue };
        let Some([sizes, steps]) = lies(place).filter(|_| *lines < VECTOR_BYTES) else { continue };
        for axis in 0..shape.len().min(sizes.len()) {
            // How many lines there are says nothing of them.
            let (extent, known) = match strides[axis] {
                Extent::Static(1) => (&mut shape[axis], sizes[axis]),
                _ => (&mut strides[axis], steps[axis]),
            };
            if *extent == Extent::Dynamic && constants.contains(&known) {
                *extent = Extent::Static(known);
            }
        }
    }
}

/// States of a block program's arguments what lets its tiles begin where vectors do, and end where arrays do: which arrays with lines that are no whole
/// vectors have the same sizes and strides, and where a constant of the kernel is the next power of two of a line or a number, as a tile that is wide
/// enough for a row, in which eighth of it they end. `lies` is as for [`state_odd_lines`]; `numbers` gives the integers that are passed at launch.
pub fn state_rows(
    args: &mut [(String, ArgType)],
    lies: impl Fn(usize) -> Option<[Vec<i64>; 2]>,
    numbers: impl Fn(usize) -> Option<i64>,
) {
    let constants = constants(args);
    let within = |number, room| end_of_eighth(number, room).filter(|(tile, _)| constants.contains(tile)).map(|(_, end)| end);
    let mut odd: Vec<(String, [Vec<i64>; 2], IndexType)> = Vec::new();
    for (place, (name, ty)) in args.iter_mut().enumerate() {
        let (mut most, mut like) = (None, None);
        match ty {
            ArgType::Array { shape, strides, lines, index, .. } => {
                let Some([sizes, steps]) = lies(place) else { continue };
                let line = strides.iter().position(|stride| *stride == Extent::Static(1));
                let open = line.filter(|&axis| shape[axis] == Extent::Dynamic);
                // Rows that begin anywhere take room from the vector on that they begin in.
                let is_odd = *lines < VECTOR_BYTES;
                most = open.and_then(|axis| within(sizes[axis], if is_odd { ROOM } else { 0 }));
                if is_odd {
                    let form = ([sizes, steps], *index);
                    like = odd.iter().find(|(_, lies, index)| (lies, index) == (&form.0, &form.1)).map(|(name, ..)| name.clone());
                    odd.push((name.clone(), form.0, form.1));
                }
            }
            ArgType::Scalar(dtype) if dtype.is_integer() => {
                let class = numbers(place).and_then(number_class).filter(|(tile, _)| constants.contains(tile));
                most = class.map(|(_, end)| end);
            }
            _ => {}
        }
        if most.is_some() || like.is_some() {
            *ty = ArgType::Stated { of: Box::new(ty.clone()), most, like };
        }
    }
}

/// The power of two above a number that is passed at launch, and what [`state_rows`] says that it is at most where that is a constant of the kernel:
/// no more than of an array whose rows have the length, whether these are whole vectors or not. Nothing of numbers of which it says nothing.
pub fn number_class(number: i64) -> Option<(i64, i64)> {
    [ROOM, 0].into_iter().filter_map(|room| end_of_eighth(number, room)).min()
}

/// The power of two above a number, and the end of the number's eighth of it that leaves so much room behind it.
fn end_of_eighth(number: i64, room: i64) -> Option<(i64, i64)> {
    let tile = i64::try_from(u64::try_from(number).ok()?.checked_next_power_of_two()?).ok()?;
    let eighth = (tile / 8).max(1);
    let end = number.checked_add(room + eighth - 1)? / eighth * eighth - room;
    (tile >= LEAST_TILE && end < tile && end + room <= tile).then_some((tile, end))
}

/// The integers among a kernel's constants that may be the length of something.
fn constants(args: &[(String, ArgType)]) -> Vec<i64> {
    let number = |(_, ty): &(String, ArgType)| match ty {
        ArgType::Const(ConstValue::Int(number)) => Some(*number),
        _ => None,
    };
    args.iter().filter_map(number).filter(|&number| number > 1).collect()
}

/// Options of [`crate::lower`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LowerOptions {
    /// The target by which `ct.ByTarget` values are chosen, such as `sm_90`; `None` chooses their defaults.
    pub target: Option<String>,
    /// True makes `reveal_type(x)` report the type of `x` as a note.
    pub reveal: bool,
    /// Choices of the schedule by name, such as `BLOCK_M`; the others take the kernel's default configuration.
    pub config: IndexMap<String, i64>,
    /// Threads a block of a per-thread kernel.
    pub block: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is stated of a number beside a constant.
    fn stated(number: i64, constant: i64) -> Option<i64> {
        let mut args =
            vec![("n".to_string(), ArgType::Scalar(DType::I32)), ("N".to_string(), ArgType::Const(ConstValue::Int(constant)))];
        state_rows(&mut args, |_| None, |place| (place == 0).then_some(number));
        match &args[0].1 {
            ArgType::Stated { most, .. } => *most,
            _ => None,
        }
    }

    #[test]
    fn numbers_of_a_class_are_stated_alike() {
        for constant in [256, 512, 8192] {
            for number in (-3..9000).chain([i64::MAX, i64::MIN]) {
                let class = number_class(number).filter(|(tile, _)| *tile == constant).map(|(_, end)| end);
                assert_eq!(stated(number, constant), class, "{number} beside {constant}");
                assert!(class.is_none_or(|end| (number..constant).contains(&end)), "{number} ends at {class:?}");
            }
        }
        assert_eq!([5000, 5105, 5106, 5120, 5121].map(|number| stated(number, 8192)), [5105, 5105, 5120, 5120, 6129].map(Some));
        assert_eq!([8177, 8178, 8192].map(|number| stated(number, 8192)), [Some(8177), None, None]);
    }
}
