//! Types: numbers, `index`, and `memref<64x128xbf16, 3>`.
//!
//! | memory space | is | the value becomes |
//! |---|---|---|
//! | none, `0`, `global` | an array of the kernel's interface, or a part of one | a view |
//! | `3`, `shared` | shared memory of the block | a buffer |
//! | `5`, `register` | one tile of the whole block, spread over its threads | an SSA value |

use std::fmt;

use smallvec::SmallVec;
use tessera_ir::text::cursor::{Cursor, Parsed};
use tessera_ir::{Diagnostic, Elem, Extent, Shape, TileType};
use tessera_types::DType;

/// Where a memref lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// The text names no space.
    Open,
    Global,
    Shared,
    Register,
}

/// A memref's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memref {
    pub(super) shape: SmallVec<[Extent; 4]>,
    pub(super) elem: DType,
    pub(super) space: Space,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    Scalar(DType),
    Memref(Memref),
}

impl Memref {
    /// Extents that are all known.
    pub(super) fn static_shape(&self) -> Option<Shape> {
        self.shape
            .iter()
            .map(|extent| match extent {
                Extent::Static(size) => u32::try_from(*size).ok(),
                Extent::Dynamic => None,
            })
            .collect()
    }

    /// What it holds when all of it is a value.
    pub(super) fn tile(&self) -> Option<TileType> {
        Some(TileType { shape: self.static_shape()?, elem: Elem::signless(self.elem) })
    }
}

impl fmt::Display for Memref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memref<")?;
        for extent in &self.shape {
            write!(f, "{extent}x")?;
        }
        f.write_str(&Elem::Num(self.elem).to_string())?;
        match self.space {
            Space::Open => f.write_str(">"),
            Space::Global => f.write_str(", 0>"),
            Space::Shared => f.write_str(", 3>"),
            Space::Register => f.write_str(", 5>"),
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::Scalar(dtype) => f.write_str(&Elem::Num(*dtype).to_string()),
            Ty::Memref(memref) => memref.fmt(f),
        }
    }
}

/// How a tile is written as a register memref.
pub(super) fn register(tile: &TileType) -> String {
    let shape = tile.shape.iter().map(|&extent| Extent::Static(i64::from(extent))).collect();
    let elem = tile.elem.num().unwrap_or(DType::I64);
    Memref { shape, elem, space: Space::Register }.to_string()
}

/// Reads a type.
pub(super) fn ty(cursor: &mut Cursor<'_>) -> Parsed<Ty> {
    if !cursor.eat_word("memref") {
        return elem(cursor).map(Ty::Scalar);
    }
    cursor.expect("<")?;
    let mut shape: SmallVec<[Extent; 4]> = SmallVec::new();
    while cursor.rest().starts_with(|c: char| c.is_ascii_digit() || c == '?') {
        let start = cursor.offset();
        let extent = if cursor.eat("?") { Extent::Dynamic } else { Extent::Static(i64::from(cursor.integer::<u32>()?)) };
        if extent == Extent::Static(0) {
            let message = "an extent of zero";
            return Err(Box::new(
                Diagnostic::error("document-type", cursor.span_from(start), message).help("leave the axis out"),
            ));
        }
        shape.push(extent);
        cursor.expect("x")?;
    }
    let elem = elem(cursor)?;
    let mut space = Space::Open;
    while cursor.eat(",") {
        if cursor.eat_word("strided") {
            skip_strides(cursor)?;
        } else {
            space = self::space(cursor)?;
        }
    }
    cursor.expect(">")?;
    Ok(Ty::Memref(Memref { shape, elem, space }))
}

/// `strided<[?, 1], offset: ?>`: a view knows its strides itself.
fn skip_strides(cursor: &mut Cursor<'_>) -> Parsed<()> {
    let entry = |cursor: &mut Cursor<'_>| {
        if !cursor.eat("?") {
            cursor.integer::<i64>()?;
        }
        Ok(())
    };
    cursor.expect("<")?;
    cursor.list("[", "]", entry)?;
    if cursor.eat(",") {
        if !cursor.eat_word("offset") {
            return Err(cursor.unexpected("`offset`"));
        }
        cursor.expect(":")?;
        entry(cursor)?;
    }
    cursor.expect(">")
}

fn space(cursor: &mut Cursor<'_>) -> Parsed<Space> {
    let start = cursor.offset();
    let found = match cursor.word() {
        Some(word) => word.to_string(),
        None => cursor.integer::<u32>()?.to_string(),
    };
    match found.as_str() {
        "0" | "global" => Ok(Space::Global),
        "3" | "shared" => Ok(Space::Shared),
        "5" | "register" => Ok(Space::Register),
        other => Err(Box::new(
            Diagnostic::error("document-space", cursor.span_from(start), format!("there is no memory space `{other}`"))
                .help("write `0` or `global`, `3` or `shared`, `5` or `register`"),
        )),
    }
}

fn elem(cursor: &mut Cursor<'_>) -> Parsed<DType> {
    if cursor.eat_word("index") { Ok(DType::I32) } else { cursor.dtype() }
}
