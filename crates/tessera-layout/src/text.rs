//! Text forms of layouts.
//!
//! **Distribution.** `<reg=[1..4@1, 16@0], lane=[8@1, 1..8@0], warp=[_]>`: for each axis the bases of its bits, lowest first. `4@1` is
//! coordinate 4 along dimension 1; `1..4@1` is the run `1@1, 2@1, 4@1`; `8@0^4@1` has two coordinates; `_` is a free bit and
//! `_*3` three of them. An axis without bits is left out. `core=[64, 32]` follows where the core's extents are not the tile's rounded up to
//! powers of two, `warps=12` where the number of warps is no power of two. The shape is not part of the text: it stands in the
//! type of the tile.
//!
//! **CuTe.** [`Distribution::cute`] gives shape:stride with a mode of threads and a mode of values, strides as scaled basis vectors
//! (`8@0` as above), the leftmost digit fastest: `((4,8),(2,2)):((2@1,1@0),(1@1,8@0))` is the accumulator of `mma.sync.m16n8`.

use std::fmt;

use crate::LayoutError;
use crate::distribution::Distribution;
use crate::linear::{Axis, Dims, LinearLayout};

/// One basis, or a run of them.
struct Run {
    first: Dims,
    length: usize,
}

/// Bases gathered into runs: doubling along one dimension, or free.
fn runs(layout: &LinearLayout, bases: impl Iterator<Item = u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for basis in bases {
        let basis = layout.unpack(basis);
        if let Some(run) = runs.last_mut() {
            let next: Dims = run.first.iter().map(|value| value << run.length).collect();
            let single = basis.iter().filter(|value| **value != 0).count() <= 1;
            if single && next == basis {
                run.length += 1;
                continue;
            }
        }
        runs.push(Run { first: basis, length: 1 });
    }
    runs
}

/// `8@0^4@1`, with the last value of a run after each first one.
fn write_basis(f: &mut impl fmt::Write, run: &Run) -> fmt::Result {
    let mut between = "";
    for (dim, &value) in run.first.iter().enumerate().filter(|(_, value)| **value != 0) {
        write!(f, "{between}{value}")?;
        if run.length > 1 {
            write!(f, "..{}", value << (run.length - 1))?;
        }
        write!(f, "@{dim}")?;
        between = "^";
    }
    if between.is_empty() {
        f.write_char('_')?;
        if run.length > 1 {
            write!(f, "*{}", run.length)?;
        }
    }
    Ok(())
}

fn write_axes(f: &mut impl fmt::Write, layout: &LinearLayout) -> fmt::Result {
    let mut between = "";
    for axis in Axis::ALL.into_iter().filter(|axis| layout.bits(*axis) > 0) {
        write!(f, "{between}{}=[", axis.name())?;
        for (i, run) in runs(layout, layout.packed_bases(axis).iter().copied()).iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            write_basis(f, run)?;
        }
        f.write_char(']')?;
        between = ", ";
    }
    Ok(())
}

fn write_list(f: &mut impl fmt::Write, numbers: &[u64]) -> fmt::Result {
    for (i, number) in numbers.iter().enumerate() {
        write!(f, "{}{number}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl fmt::Display for LinearLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        write_axes(f, self)?;
        f.write_str("} -> [")?;
        write_list(f, &self.extents())?;
        f.write_str("]")
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<")?;
        write_axes(f, self.core())?;
        if !self.shape().iter().zip(self.core().extents()).all(|(extent, core)| extent.next_power_of_two() == core) {
            f.write_str(", core=[")?;
            write_list(f, &self.core().extents())?;
            f.write_str("]")?;
        }
        if !self.warps().is_power_of_two() {
            write!(f, ", warps={}", self.warps())?;
        }
        f.write_str(">")
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        write_list(f, self.shape())?;
        write!(f, "] {self}")
    }
}

impl Distribution {
    /// The distribution in CuTe's notation; see the module's head.
    pub fn cute(&self) -> String {
        let core = self.core();
        let threads = core.packed_bases(Axis::Lane).iter().chain(core.packed_bases(Axis::Warp)).copied();
        let threads = modes(runs(core, threads));
        let mut values = modes(runs(core, core.packed_bases(Axis::Register).iter().copied()));
        for dim in (0..self.rank()).rev().filter(|&dim| self.repeat(dim) > 1) {
            values.push((self.repeat(dim).to_string(), format!("{}@{dim}", core.extent(dim))));
        }
        let nest = |pick: fn(&(String, String)) -> &String| {
            let list = |modes: &[(String, String)], none: &str| match modes {
                [] => none.to_string(),
                [one] => pick(one).clone(),
                many => format!("({})", many.iter().map(|mode| pick(mode).as_str()).collect::<Vec<_>>().join(",")),
            };
            (list(&threads, ""), list(&values, ""))
        };
        let (shapes, strides) = (nest(|mode| &mode.0), nest(|mode| &mode.1));
        let or = |text: String, none: &str| if text.is_empty() { none.to_string() } else { text };
        format!("({},{}):({},{})", or(shapes.0, "1"), or(shapes.1, "1"), or(strides.0, "0"), or(strides.1, "0"))
    }

    /// Reads the text form of a tile of `shape`.
    ///
    /// # Errors
    /// What is wrong and where, or why there is no such distribution.
    pub fn parse(text: &str, shape: &[u64]) -> Result<Distribution, LayoutError> {
        let mut reader = Reader { text, at: 0 };
        let mut bases: Vec<(Axis, Vec<Dims>)> = Vec::new();
        let (mut core, mut warps) = (None, None);
        reader.expect("<")?;
        while !reader.accept(">") {
            if !bases.is_empty() || core.is_some() || warps.is_some() {
                reader.expect(",")?;
            }
            let (key, at) = reader.run_of(char::is_ascii_alphanumeric);
            reader.expect("=")?;
            match [Axis::Register, Axis::Lane, Axis::Warp].into_iter().find(|axis| axis.name() == key) {
                Some(axis) => bases.push((axis, reader.bases(shape.len())?)),
                None if key == "core" => core = Some(reader.list()?),
                None if key == "warps" => warps = Some(reader.number()?),
                None => return Err(LayoutError::Text { what: format!("unknown key `{key}`"), at }),
            }
        }
        if !reader.rest().is_empty() {
            return Err(reader.error("the end"));
        }
        let rounded = || shape.iter().map(|extent| extent.checked_next_power_of_two().ok_or(LayoutError::TooLarge)).collect();
        let extents = core.map_or_else(rounded, Ok)?;
        let core = LinearLayout::from_bases(&extents, &bases)?;
        let warps = warps.unwrap_or(core.size(Axis::Warp));
        Distribution::new(shape, core, warps)
    }
}

/// Shape and stride of each run.
fn modes(runs: Vec<Run>) -> Vec<(String, String)> {
    let mode = |run: Run| {
        let mut stride = String::new();
        let _ = write_basis(&mut stride, &Run { first: run.first, length: 1 });
        if stride == "_" {
            stride = "0".to_string();
        }
        ((1u64 << run.length).to_string(), stride)
    };
    runs.into_iter().map(mode).collect()
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn accept(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    fn expect(&mut self, mark: &str) -> Result<(), LayoutError> {
        if self.accept(mark) { Ok(()) } else { Err(self.error(&format!("`{mark}`"))) }
    }

    fn error(&self, expected: &str) -> LayoutError {
        LayoutError::Text { what: format!("expected {expected}"), at: self.at }
    }

    /// The longest run of such characters, and where it begins.
    fn run_of(&mut self, belongs: fn(&char) -> bool) -> (&'t str, usize) {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(&c)).unwrap_or(rest.len());
        let at = self.at;
        self.at += end;
        (&rest[..end], at)
    }

    fn number(&mut self) -> Result<u64, LayoutError> {
        let (digits, at) = self.run_of(char::is_ascii_digit);
        digits.parse().map_err(|_| LayoutError::Text { what: "expected a number".to_string(), at })
    }

    fn list(&mut self) -> Result<Dims, LayoutError> {
        let mut list = Dims::new();
        self.expect("[")?;
        while !self.accept("]") {
            if !list.is_empty() {
                self.expect(",")?;
            }
            list.push(self.number()?);
        }
        Ok(list)
    }

    fn bases(&mut self, rank: usize) -> Result<Vec<Dims>, LayoutError> {
        let mut list = Vec::new();
        self.expect("[")?;
        while !self.accept("]") {
            if !list.is_empty() {
                self.expect(",")?;
            }
            self.run(rank, &mut list)?;
            if list.len() > 63 {
                return Err(LayoutError::TooLarge);
            }
        }
        Ok(list)
    }

    /// `_`, `_*3`, `1..8@0`, `8@0^4@1`.
    fn run(&mut self, rank: usize, list: &mut Vec<Dims>) -> Result<(), LayoutError> {
        let zero = Dims::from_elem(0, rank);
        if self.accept("_") {
            let copies = if self.accept("*") { self.number()? } else { 1 };
            list.extend((0..copies.min(64)).map(|_| zero.clone()));
            return Ok(());
        }
        let mut basis = zero;
        loop {
            let first = self.number()?;
            let last = if self.accept("..") { Some(self.number()?) } else { None };
            self.expect("@")?;
            let at = self.at;
            let dim = self.number()? as usize;
            if dim >= rank || first == 0 {
                return Err(LayoutError::Text {
                    what: "expected a coordinate above 0 of a dimension of the tile".to_string(),
                    at,
                });
            }
            basis[dim] = first;
            if let Some(last) = last {
                while basis[dim] < last {
                    list.push(basis.clone());
                    basis[dim] = basis[dim].checked_mul(2).ok_or(LayoutError::TooLarge)?;
                }
                if basis[dim] != last {
                    return Err(LayoutError::Text { what: format!("{first} doubled does not reach {last}"), at });
                }
                break;
            }
            if !self.accept("^") {
                break;
            }
        }
        list.push(basis);
        Ok(())
    }
}
