//! Reductions and scans by a region, which runs over strips of many elements at once.
//!
//! A reduction combines neighbours, then neighbouring results, and so on: log2 of the extent rounds, each over all rows at once.
//! An odd last element waits for the next round. Shape alone fixes the order. A scan doubles its reach in every round; with long
//! rows after the axis it goes one step at a time instead.

use super::group::Params;
use super::{Machine, Ran};
use crate::plan::{Place, Region};

/// Rows after the axis that are long enough to be combined one step of the axis at a time.
const LONG: usize = 16;

/// What a region combines: an operand's elements or, in checked execution, their marks.
struct Column {
    from: *const u8,
    to: *mut u8,
    width: usize,
}

impl Machine<'_> {
    /// The operands' elements, then their marks where there are any: marks go the way of their elements.
    fn columns(&mut self, region: &Region, src: &[Place], dst: &[Place]) -> Vec<Column> {
        let places = || src.iter().copied().zip(dst.iter().copied());
        let mut columns: Vec<Column> = places()
            .zip(&region.bytes)
            .map(|((from, to), &width)| Column { from: self.place(from), to: self.place(to), width: width.into() })
            .collect();
        if let Some(check) = self.check.as_mut() {
            columns.extend(places().map(|(from, to)| {
                let (from, to) = check.shadows(from, to);
                Column { from, to, width: 1 }
            }));
        }
        columns
    }

    /// Combines so many elements of each column; the first `operands` of them are elements, the others marks.
    unsafe fn combine(&mut self, region: &Region, len: usize, operands: usize, sides: &[*const u8], to: &[*mut u8]) -> Ran<()> {
        let (inputs, marks) = sides.split_at(2 * operands);
        let (outputs, result_marks) = to.split_at(operands);
        // SAFETY: the caller has room for so many elements of each column.
        unsafe { self.strips(&region.group, len, &Params { inputs, outputs, marks, result_marks }) }
    }

    pub(super) fn reduce_tree(&mut self, region: &Region, extents: [usize; 3], src: &[Place], dst: &[Place]) -> Ran<()> {
        let [outer, mut middle, inner] = extents;
        let columns = self.columns(region, src, dst);
        let count = columns.len();
        let total: usize = outer * middle * inner;
        let widths: Vec<usize> = columns.iter().map(|column| column.width).collect();
        let room: usize = widths.iter().map(|width| (total * width).next_multiple_of(64)).sum();
        let bases: Vec<usize> = widths
            .iter()
            .scan(0, |at, width| {
                let here = *at;
                *at += (total * width).next_multiple_of(64);
                Some(here)
            })
            .collect();
        let current = self.memory.temporary[0].reserve(room);
        let left = self.memory.temporary[1].reserve(room);
        let right = self.memory.temporary[2].reserve(room);
        let result = self.memory.temporary[3].reserve(room);
        // SAFETY: all four hold `total` elements of every column.
        unsafe {
            for i in 0..count {
                std::ptr::copy_nonoverlapping(columns[i].from, current.add(bases[i]), total * widths[i]);
            }
            while middle > 1 {
                let pairs = middle / 2;
                let next = middle.div_ceil(2);
                for i in 0..count {
                    let row = inner * widths[i];
                    for o in 0..outer {
                        for p in 0..pairs {
                            let from = current.add(bases[i] + (o * middle + 2 * p) * row);
                            let at = bases[i] + (o * pairs + p) * row;
                            copy_row(from, left.add(at), row);
                            copy_row(from.add(row), right.add(at), row);
                        }
                    }
                }
                let mut inputs = Vec::with_capacity(2 * count);
                for &base in &bases {
                    inputs.push(right.add(base).cast_const());
                    inputs.push(left.add(base).cast_const());
                }
                let outputs: Vec<*mut u8> = bases.iter().map(|&base| result.add(base)).collect();
                self.combine(region, outer * pairs * inner, src.len(), &inputs, &outputs)?;
                for i in 0..count {
                    let row = inner * widths[i];
                    if pairs == next {
                        std::ptr::copy_nonoverlapping(result.add(bases[i]), current.add(bases[i]), outer * pairs * row);
                        continue;
                    }
                    for o in 0..outer {
                        // Rows move toward the start: what is read was not overwritten yet.
                        let last = current.add(bases[i] + (o * middle + middle - 1) * row);
                        std::ptr::copy(last, current.add(bases[i] + (o * next + pairs) * row), row);
                        let from = result.add(bases[i] + o * pairs * row);
                        std::ptr::copy_nonoverlapping(from, current.add(bases[i] + o * next * row), pairs * row);
                    }
                }
                middle = next;
            }
            for i in 0..count {
                std::ptr::copy_nonoverlapping(current.add(bases[i]), columns[i].to, outer * inner * widths[i]);
            }
        }
        Ok(())
    }

    pub(super) fn scan(&mut self, region: &Region, extents: [usize; 3], reverse: bool, src: &[Place], dst: &[Place]) -> Ran<()> {
        let [outer, middle, inner] = extents;
        let columns = self.columns(region, src, dst);
        let count = columns.len();
        let total = outer * middle * inner;
        let widths: Vec<usize> = columns.iter().map(|column| column.width).collect();
        let longest = widths.iter().map(|width| (middle * inner * width).next_multiple_of(64)).max().unwrap_or(0);
        let result = self.memory.temporary[0].reserve(longest * count);
        // SAFETY: source and destination hold `total` elements; `result` holds a row of every column.
        unsafe {
            for i in 0..count {
                std::ptr::copy_nonoverlapping(columns[i].from, columns[i].to, total * widths[i]);
            }
            // One round: elements `at..at + len` of a row are combined with those `reach` steps earlier (later in reverse).
            let mut rounds: Vec<(usize, usize, usize)> = Vec::new();
            if inner >= LONG {
                rounds.extend((1..middle).map(|k| if reverse { (middle - 1 - k, 1, 1) } else { (k, 1, 1) }));
            } else {
                let mut reach = 1;
                while reach < middle {
                    rounds.push((if reverse { 0 } else { reach }, middle - reach, reach));
                    reach *= 2;
                }
            }
            for (at, len, reach) in rounds {
                for o in 0..outer {
                    let mut inputs = Vec::with_capacity(2 * count);
                    let mut outputs = Vec::with_capacity(count);
                    for i in 0..count {
                        let row = columns[i].to.add(o * middle * inner * widths[i]);
                        let step = inner * widths[i];
                        let before = if reverse { at + reach } else { at - reach };
                        inputs.push(row.add(at * step).cast_const());
                        inputs.push(row.add(before * step).cast_const());
                        outputs.push(result.add(i * longest));
                    }
                    self.combine(region, len * inner, src.len(), &inputs, &outputs)?;
                    for i in 0..count {
                        let step = inner * widths[i];
                        let row = columns[i].to.add(o * middle * step);
                        std::ptr::copy_nonoverlapping(outputs[i], row.add(at * step), len * step);
                    }
                }
            }
        }
        Ok(())
    }
}

unsafe fn copy_row(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for a row on both sides. Rows of one element are the common case.
    unsafe {
        match bytes {
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}
