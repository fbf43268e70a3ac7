//! Products by multiply-adds: each thread multiplies the rows by the columns of the accumulator that it holds, from shared memory.
//!
//! A thread takes a few steps of the contraction at a time, a *chunk*: the elements of all its rows, then those of a few columns after
//! the other. Loads are 16 bytes wide, along the contraction where the factor lies that way, else across lines; every address is the
//! thread's corner plus a constant, so that the loop's instructions are the multiply-adds and one load for about twenty of them.
//!
//! ```text
//! ld.shared.v4 %a0..3, [rows]      ... eight rows, four steps
//! ld.shared.v4 %b0..3, [columns]   ... four columns, four steps
//! fma %c, %a, %b, %c               ... 128 of them
//! ```

use tessera_ir::{Elem, Value, bug};
use tessera_layout::Distribution;
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Class, Value as Reg};
use tessera_types::DType;

use super::bound::Buffer;
use super::lowering::{Lowered, Lowering};
use super::place::Place;
use super::view::Run;
use tessera_analysis::lines::Lines;

/// Multiply-adds of a thread that are written out: enough that a loop around them costs nothing, few enough for the cache of
/// instructions.
const WRITTEN: u64 = 2048;

/// One factor as a thread reads it.
struct Side {
    elem: DType,
    /// Address of line 0, step 0 of the thread.
    corner: Reg,
    read: Lines,
}

impl std::ops::Deref for Side {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        &self.read
    }
}

impl Lowering<'_> {
    /// Adds a product whose threads multiply by themselves to sums; `None` where factors do not lie in memory as this takes them.
    pub(super) fn by_threads(&mut self, lhs: &Buffer, rhs: &Buffer, acc: Value, sums: &[Reg]) -> Lowered<Option<Vec<Reg>>> {
        let (layout, out) = (self.layout(acc)?, self.dtype(acc)?);
        let ty = match out {
            DType::F32 => Ty::F32,
            DType::F64 => Ty::F64,
            _ => return Ok(None),
        };
        if layout.rank() != 2 || layout.has_holes() || lhs.elem != out || rhs.elem != out {
            return Ok(None);
        }
        let place = self.place(&layout);
        let (Some(rows), Some(columns)) = (self.side(lhs, &layout, &place, 0), self.side(rhs, &layout, &place, 1)) else {
            return Ok(None);
        };
        let (depth, held) = (u64::from(lhs.shape[1]), place.len() as u64);
        let chunk = if rows.deep || columns.deep { 16 / out.unpacked_bytes() as u64 } else { 1 };
        // Where rows pass, assemblers keep more loads in flight than registers allow: a shorter stretch has fewer.
        let written = if rows.deep && !columns.deep { WRITTEN / 2 } else { WRITTEN };
        let mut round = depth;
        while round * held > written && round.is_multiple_of(2 * chunk) {
            round /= 2;
        }
        if !depth.is_multiple_of(chunk) || rows.lines.len() * columns.lines.len() != place.len() {
            return Ok(None);
        }
        // Which register holds a row and a column.
        let number =
            |lines: &[u64], line: u64| lines.binary_search(&line).unwrap_or_else(|_| bug!("a line that its factor has not"));
        let mut at = vec![0; place.len()];
        for register in 0..place.len() {
            let (row, column) = (place.parts(register, 0).1, place.parts(register, 1).1);
            at[number(&rows.lines, row) * columns.lines.len() + number(&columns.lines, column)] = register;
        }
        let mut sums = sums.to_vec();
        if round == depth {
            self.outer_products(ty, [&rows, &columns], round, chunk, &at, &mut sums);
            return Ok(Some(sums));
        }
        let zero = self.b.u32(0);
        let classes: Vec<Class> = std::iter::once(Class::B32).chain(sums.iter().map(|&reg| self.class(reg))).collect();
        let (body, exit) = (self.b.new_block(&classes), self.b.new_block(&classes[1..]));
        self.b.jump(body, &[&[zero][..], &sums].concat());
        self.b.switch_to(body);
        let params = self.b.block_params(body);
        let (first, mut sums) = (params[0], params[1..].to_vec());
        let [rows, columns] = [rows, columns].map(|side| {
            let step = self.b.u32(side.step as u32);
            Side { corner: self.b.mad(Ty::U32, first, step, side.corner), ..side }
        });
        self.outer_products(ty, [&rows, &columns], round, chunk, &at, &mut sums);
        let (steps, limit) = (self.b.u32(round as u32), self.b.u32(depth as u32));
        let next = self.b.add(Ty::U32, first, steps);
        let again = self.b.setp(tessera_ptx::Word::Lt, Ty::U32, next, limit);
        self.b.branch(again, (body, &[&[next][..], &sums].concat()), (exit, &sums));
        self.b.switch_to(exit);
        Ok(Some(self.b.block_params(exit).to_vec()))
    }

    /// A factor whose lines are the accumulator's coordinate `dim`.
    fn side(&mut self, buffer: &Buffer, layout: &Distribution, place: &Place, dim: usize) -> Option<Side> {
        let read = Lines::of(&buffer.lies, layout, dim)?;
        let corner = self.along(buffer, dim, place.thread[dim], buffer.base);
        Some(Side { elem: buffer.elem, corner, read })
    }

    /// Adds `steps` outer products of columns of the left and rows of the right factor; `at` is the accumulator's register by row
    /// and column. All lines of one side are held for a chunk, those of the other pass: the side whose loads run along the
    /// contraction, since in a step all its registers lie in one bank. One of its lines at a time stays in the multiplier's own
    /// cache of operands.
    fn outer_products(&mut self, ty: Ty, [rows, columns]: [&Side; 2], steps: u64, chunk: u64, at: &[usize], sums: &mut [Reg]) {
        let by_rows = rows.deep && !columns.deep;
        let (held, passing) = if by_rows { (columns, rows) } else { (rows, columns) };
        let group = if passing.deep { 1 } else { passing.vector };
        for first in (0..steps).step_by(chunk as usize) {
            let a = self.chunk_of(held, 0..held.lines.len(), first, chunk);
            for start in (0..passing.lines.len()).step_by(group) {
                let some = start..(start + group).min(passing.lines.len());
                let b = self.chunk_of(passing, some.clone(), first, chunk);
                for (a, b) in a.iter().zip(&b) {
                    for (kept, &a) in a.iter().enumerate() {
                        for (passed, &b) in some.clone().zip(b) {
                            let (row, column) = if by_rows { (passed, kept) } else { (kept, passed) };
                            let sum = &mut sums[at[row * columns.lines.len() + column]];
                            *sum = self.b.fma(ty, a, b, *sum);
                        }
                    }
                }
            }
        }
    }

    /// The elements of some lines in each step of a chunk.
    fn chunk_of(&mut self, side: &Side, lines: std::ops::Range<usize>, first: u64, chunk: u64) -> Vec<Vec<Reg>> {
        let mut values = vec![Vec::new(); chunk as usize];
        if side.deep {
            for line in &side.lines[lines] {
                for start in (0..chunk).step_by(side.vector) {
                    let loaded = self.shared_vector(side, *line, first + start);
                    for (i, value) in loaded.into_iter().enumerate() {
                        values[start as usize + i].push(value);
                    }
                }
            }
            return values;
        }
        for (step, values) in values.iter_mut().enumerate() {
            for run in side.lines[lines.clone()].chunks(side.vector) {
                values.extend(self.shared_vector(side, run[0], first + step as u64));
            }
        }
        values
    }

    fn shared_vector(&mut self, side: &Side, line: u64, step: u64) -> Vec<Reg> {
        let elem = Elem::Num(side.elem);
        let zero = self.bits(elem, 0);
        let address = self.b.at(side.corner, (line * side.line + step * side.step) as i64);
        let run = Run { registers: (0..side.vector).collect(), address, when: None, cut: None };
        self.load_run("shared", elem, &run, zero, false)
    }
}
