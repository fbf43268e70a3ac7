//! Meshes of ranks, and how whole operands are divided over them (Graph IR).
//!
//! A Graph function with a [`Mesh`] is one of two things. `mesh(tp=2)` marks a whole program: its types are those of whole
//! operands, and a [`Sharding`] says of an operand how the ranks will hold it. `ranks(tp=2)` marks the program that every rank
//! runs: its types are those of the rank's own part, a sharding says which part of the whole an argument is, and collective
//! operations exchange values between ranks. The pass `collective-insertion` makes the second from the first.
//!
//! A sharding has one entry a dimension: `_` (every rank holds all of it) or the name of the mesh axis whose ranks hold a
//! contiguous part each. A dimension is divided by one mesh axis at most, and a mesh axis divides one dimension. An operand of a whole
//! program without one is held whole by every rank when it is read, and as it is computed when it is only written.
//!
//! ```text
//! graph @f(%A: operand<128x64xbf16> {sharding = "[_, tp]"}, ...) ... mesh(dp=2, tp=4) {    a rank holds 128 x 16 of A
//! graph @f(%A: operand<@Mx@"K/tp"xbf16> {sharding = "[_, tp]"}, ...) ... ranks(tp=4) {     K/tp is the part of K
//! ```
//!
//! Ranks are numbered along the mesh in row-major order: in `mesh(dp=2, tp=4)` rank 5 has position 1 on `dp` and 1 on `tp`.

use std::fmt;

use smallvec::SmallVec;

use crate::diag::Span;
use crate::types::{Axis, TensorType};

/// Whose program a function with a mesh is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// One program over whole operands.
    Whole,
    /// What every rank runs on its parts.
    Rank,
}

impl Program {
    /// The word that opens the mesh in text.
    pub const fn word(self) -> &'static str {
        match self {
            Program::Whole => "mesh",
            Program::Rank => "ranks",
        }
    }
}

/// One axis of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MeshAxis {
    /// Its name.
    pub name: String,
    /// How many ranks stand along it.
    pub size: u32,
}

/// Ranks in a grid with named axes.
#[derive(Clone, Debug)]
pub struct Mesh {
    /// The axes; the last one varies fastest over rank numbers.
    pub axes: SmallVec<[MeshAxis; 2]>,
    /// Whose program the function is.
    pub program: Program,
    /// Where it is stated.
    pub span: Span,
}

impl Mesh {
    /// The axis of a name.
    pub fn axis(&self, name: &str) -> Option<&MeshAxis> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|axis| axis.size as usize).product()
    }

    /// A rank's position along an axis; 0 along one that the mesh does not have.
    pub fn position(&self, rank: usize, axis: &str) -> usize {
        let mut rest = rank;
        for entry in self.axes.iter().rev() {
            let size = entry.size as usize;
            if entry.name == axis {
                return rest % size;
            }
            rest /= size;
        }
        0
    }

    /// The ranks that differ from `rank` along these axes alone, itself among them, in ascending order.
    pub fn group(&self, rank: usize, over: &[String]) -> Vec<usize> {
        let same = |other: &usize| {
            self.axes
                .iter()
                .filter(|axis| !over.contains(&axis.name))
                .all(|axis| self.position(*other, &axis.name) == self.position(rank, &axis.name))
        };
        (0..self.ranks()).filter(same).collect()
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
        write!(f, "{}({})", self.program.word(), axes.join(", "))
    }
}

/// How a tensor is divided: for each dimension the mesh axis that divides it, if one does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sharding {
    /// One entry a dimension, outermost first.
    pub dims: SmallVec<[Option<String>; 4]>,
}

impl Sharding {
    /// Nothing divided.
    pub fn whole(rank: usize) -> Sharding {
        Sharding { dims: SmallVec::from_elem(None, rank) }
    }

    /// Reads `[_, tp]`; a bare name divides the last of `rank` dimensions. On failure, what is wrong.
    pub fn parse(text: &str, rank: usize) -> Result<Sharding, String> {
        let name = |entry: &str| -> Result<Option<String>, String> {
            let entry = entry.trim();
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            match entry {
                "_" => Ok(None),
                _ if entry.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && entry.chars().all(word) => {
                    Ok(Some(entry.to_string()))
                }
                _ => Err(format!("`{entry}` is neither `_` nor the name of a mesh axis")),
            }
        };
        let trimmed = text.trim();
        let Some(open) = trimmed.strip_prefix('[') else {
            let mut sharding = Sharding::whole(rank);
            match (name(trimmed)?, sharding.dims.last_mut()) {
                (axis, Some(last)) => *last = axis,
                (_, None) => return Err("a scalar has no dimension to divide".to_string()),
            }
            return Ok(sharding);
        };
        let Some(inner) = open.strip_suffix(']') else { return Err(format!("`{trimmed}` has no closing bracket")) };
        if inner.trim().is_empty() {
            return Ok(Sharding::default());
        }
        Ok(Sharding { dims: inner.split(',').map(name).collect::<Result<_, _>>()? })
    }

    /// True when no dimension is divided.
    pub fn is_whole(&self) -> bool {
        self.dims.iter().all(Option::is_none)
    }

    /// The type of a rank's part; `None` where a dimension does not divide or the mesh lacks an axis.
    pub fn local(&self, whole: &TensorType, mesh: &Mesh) -> Option<TensorType> {
        if self.dims.len() != whole.axes.len() {
            return None;
        }
        let part = |(axis, dim): (&Axis, &Option<String>)| match dim {
            None => Some(axis.clone()),
            Some(name) => mesh.axis(name).and_then(|by| part(axis, by)),
        };
        Some(TensorType { axes: whole.axes.iter().zip(&self.dims).map(part).collect::<Option<_>>()?, elem: whole.elem })
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<&str> = self.dims.iter().map(|dim| dim.as_deref().unwrap_or("_")).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

/// A sharding that the text states of an argument.
#[derive(Clone, Debug)]
pub struct StatedSharding {
    /// The sharding.
    pub sharding: Sharding,
    /// Where it is stated.
    pub span: Span,
}

/// One rank's part of a dimension: the quotient of a number that divides, `K/tp` of a symbol `K` that is no part itself.
pub fn part(axis: &Axis, by: &MeshAxis) -> Option<Axis> {
    match axis {
        Axis::Fixed(extent) => (by.size > 0 && extent % by.size == 0 && *extent > 0).then(|| Axis::Fixed(extent / by.size)),
        Axis::Symbol(name) => (!name.contains('/')).then(|| Axis::Symbol(format!("{name}/{}", by.name))),
    }
}

/// The dimension that a part belongs to: the inverse of [`part`].
pub fn whole(axis: &Axis, by: &MeshAxis) -> Option<Axis> {
    match axis {
        Axis::Fixed(extent) => extent.checked_mul(by.size).map(Axis::Fixed),
        Axis::Symbol(name) => {
            let whole = name.strip_suffix(&by.name)?.strip_suffix('/')?;
            Some(Axis::Symbol(whole.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::SourceId;
    use crate::entity::EntityId;

    fn mesh() -> Mesh {
        let axis = |name: &str, size| MeshAxis { name: name.to_string(), size };
        let span = Span { source: SourceId::new(0), start: 0, end: 0 };
        Mesh { axes: SmallVec::from_vec(vec![axis("dp", 2), axis("tp", 4)]), program: Program::Whole, span }
    }

    #[test]
    fn shardings_are_read_and_written() {
        for text in ["[_, tp]", "[dp, tp]", "[_]", "[]"] {
            assert_eq!(Sharding::parse(text, 2).unwrap().to_string(), text);
        }
        assert_eq!(Sharding::parse("tp", 3).unwrap().to_string(), "[_, _, tp]");
        for text in ["[_, tp", "[_, 3]", "[,]", "a b", ""] {
            assert!(Sharding::parse(text, 2).is_err(), "{text}");
        }
        assert!(Sharding::parse("tp", 0).is_err());
    }

    #[test]
    fn a_part_and_its_whole_are_inverse() {
        let by = MeshAxis { name: "tp".to_string(), size: 4 };
        for axis in [Axis::Fixed(64), Axis::Symbol("K".to_string())] {
            assert_eq!(whole(&part(&axis, &by).unwrap(), &by), Some(axis));
        }
        assert_eq!(part(&Axis::Fixed(6), &by), None);
        assert_eq!(part(&Axis::Symbol("K/dp".to_string()), &by), None);
        assert_eq!(whole(&Axis::Symbol("K/dp".to_string()), &by), None);
    }

    #[test]
    fn ranks_lie_in_row_major_order() {
        let mesh = mesh();
        assert_eq!((mesh.ranks(), mesh.position(5, "dp"), mesh.position(5, "tp")), (8, 1, 1));
        assert_eq!(mesh.group(5, &["tp".to_string()]), [4, 5, 6, 7]);
        assert_eq!(mesh.group(5, &["dp".to_string()]), [1, 5]);
        assert_eq!(mesh.group(5, &["dp".to_string(), "tp".to_string()]).len(), 8);
    }
}
