//! What checked execution remembers: undetermined elements, and who touched which byte.
//!
//! Every element of every buffer and every register has a mark: 0 for a determined value, else the number of a [`Cause`], the place
//! where the value was left undetermined. Marks spread through operations; one that reaches a store, a branch or an address is
//! reported with its cause. Every byte of every argument remembers the last block that wrote it and two that read it, with the
//! operations; a second block that writes it, or reads what the first wrote, without atomics is a conflict.

use tessera_ir::{Diagnostic, Span};

use crate::build::Plan;
use crate::exec::{Ran, Range};
use crate::lanes::LaneOp;
use crate::plan::{Access, Place, Reg};

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Atomic,
}

/// Marks of a strip; `None` where all are 0.
pub(crate) type Marks = Option<Vec<u8>>;

/// Why a value is undetermined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Padding(Span),
    Uninitialised(Span),
}

/// Who touched a byte; block numbers start at 1.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: u32,
    reader: u32,
    other_reader: u32,
    writer_span: u16,
    reader_span: u16,
    other_span: u16,
    atomic: bool,
    written: bool,
}

/// The memory of one allocation.
struct Shadow {
    range: Range,
    uninitialised: bool,
    cells: Vec<Cell>,
}

/// The state of a checked launch.
pub(crate) struct Check {
    buffers: Vec<Vec<u8>>,
    registers: Vec<u8>,
    causes: Vec<Cause>,
    spans: Vec<Span>,
    shadows: Vec<Shadow>,
    grid: [u32; 3],
    block: u32,
    /// The block has synchronised with others: what it touches from here on is ordered by that.
    ordered: bool,
}

impl Check {
    /// `uninitialised` holds positions of ranges, arguments before allocations, whose memory holds nothing yet.
    pub(crate) fn new(plan: &Plan, ranges: &[Range], uninitialised: &[usize], grid: [u32; 3]) -> Check {
        let shadows = ranges
            .iter()
            .enumerate()
            .map(|(i, &range)| Shadow { range, uninitialised: uninitialised.contains(&i), cells: Vec::new() })
            .collect();
        Check {
            buffers: plan.buffers.iter().map(|buffer| vec![0; buffer.elements]).collect(),
            registers: vec![0; plan.registers.len()],
            causes: Vec::new(),
            spans: Vec::new(),
            shadows,
            grid,
            block: 0,
            ordered: false,
        }
    }

    /// For each range whose memory held nothing, in the order of their positions, which bytes were written: under whatever name.
    pub(crate) fn written(&self, positions: &[usize]) -> Vec<Vec<bool>> {
        let of = |&position: &usize| {
            let range = self.shadows[position].range;
            let mut written = vec![false; (range.end - range.start) as usize];
            for shadow in self.shadows.iter().filter(|shadow| !shadow.cells.is_empty()) {
                let (start, end) = (range.start.max(shadow.range.start), range.end.min(shadow.range.end));
                (start..end).for_each(|at| {
                    written[(at - range.start) as usize] |= shadow.cells[(at - shadow.range.start) as usize].written;
                });
            }
            written
        };
        positions.iter().map(of).collect()
    }

    pub(crate) fn start_block(&mut self, block: [u32; 3], registers: usize) {
        self.block = 1 + block[0] + self.grid[0] * (block[1] + self.grid[1] * block[2]);
        self.ordered = false;
        self.registers.clear();
        self.registers.resize(registers, 0);
    }

    pub(crate) fn synchronised(&mut self) {
        self.ordered = true;
    }

    // Marks

    fn cause(&mut self, cause: Cause) -> u8 {
        let known = self.causes.iter().position(|c| *c == cause);
        let index = known.unwrap_or_else(|| {
            // The last number stands for all further causes.
            if self.causes.len() < 255 {
                self.causes.push(cause);
            }
            self.causes.len() - 1
        });
        index as u8 + 1
    }

    /// The mark of an element outside its array.
    pub(crate) fn padding(&mut self, span: Span) -> u8 {
        self.cause(Cause::Padding(span))
    }

    pub(crate) fn scalar(&mut self, op: LaneOp, dst: Reg, src: &[Reg; 3], first: u64) {
        let of = |reg: Reg| self.registers[reg.0 as usize];
        let mark = match op {
            LaneOp::Select(_) => of(src[0]).max(of(if first & 1 != 0 { src[1] } else { src[2] })),
            // Unused operands name register 0, the first argument or a constant: never marked.
            _ => src.iter().map(|&reg| of(reg)).max().unwrap_or(0),
        };
        self.registers[dst.0 as usize] = mark;
    }

    pub(crate) fn move_register(&mut self, dst: Reg, src: Reg) {
        self.registers[dst.0 as usize] = self.registers[src.0 as usize];
    }

    pub(crate) fn clean(&mut self, reg: Reg) {
        self.registers[reg.0 as usize] = 0;
    }

    pub(crate) fn read(&mut self, dst: Reg, place: Place) {
        self.registers[dst.0 as usize] = self.marks(place, 0, 1).map_or(0, |marks| marks[0]);
    }

    pub(crate) fn uniform(&self, reg: Reg, count: usize) -> Marks {
        let mark = self.registers[reg.0 as usize];
        (mark != 0).then(|| vec![mark; count])
    }

    /// The marks of a stretch of a place.
    pub(crate) fn marks(&self, place: Place, start: usize, count: usize) -> Marks {
        let Place::Buffer(index) = place else { return None };
        let all = &self.buffers[index as usize];
        let marks = &all[start..start.saturating_add(count).min(all.len())];
        marks.iter().any(|&mark| mark != 0).then(|| marks.to_vec())
    }

    pub(crate) fn set_marks(&mut self, place: Place, start: usize, count: usize, marks: Option<&[u8]>) {
        let Place::Buffer(index) = place else { return };
        let to = &mut self.buffers[index as usize][start..start + count];
        match marks {
            Some(marks) => to.copy_from_slice(marks),
            None => to.fill(0),
        }
    }

    pub(crate) fn clear(&mut self, place: Place, count: usize) {
        self.set_marks(place, 0, count, None);
    }

    pub(crate) fn raise(&mut self, place: Place, index: usize, mark: u8) {
        if let Place::Buffer(buffer) = place {
            let cell = &mut self.buffers[buffer as usize][index];
            *cell = (*cell).max(mark);
        }
    }

    pub(crate) fn copy(&mut self, dst: Place, src: Place) {
        let count = match dst {
            Place::Buffer(index) => self.buffers[index as usize].len(),
            Place::Pool(_) => 0,
        };
        let marks = self.marks(src, 0, count);
        self.set_marks(dst, 0, count, marks.as_deref());
    }

    /// The marks of both places, for copies that follow the elements.
    pub(crate) fn shadows(&mut self, src: Place, dst: Place) -> (*const u8, *mut u8) {
        static CLEAN: [u8; 1 << 20] = [0; 1 << 20];
        let from = match src {
            Place::Buffer(index) => self.buffers[index as usize].as_ptr(),
            Place::Pool(_) => CLEAN.as_ptr(),
        };
        let to = match dst {
            Place::Buffer(index) => self.buffers[index as usize].as_mut_ptr(),
            Place::Pool(_) => std::ptr::null_mut(),
        };
        (from, to)
    }

    /// A mark on any source marks the whole result.
    pub(crate) fn spread(&mut self, dst: Place, src: &[Place]) {
        let mark = src.iter().filter_map(|&place| self.marks(place, 0, usize::MAX)).flatten().max().unwrap_or(0);
        if let Place::Buffer(index) = dst {
            self.buffers[index as usize].fill(mark);
        }
    }

    fn undetermined(&self, mark: u8, span: Span, reached: &str) -> Box<Diagnostic> {
        let message = format!("an undetermined value reaches {reached}");
        let diagnostic = Diagnostic::error("cpu-undetermined", span, message);
        Box::new(match self.causes.get(mark as usize - 1) {
            Some(Cause::Padding(cause)) => diagnostic
                .also(*cause, "what this load yields outside the array is undetermined")
                .help("give the load a padding value, or keep what lies outside out of the result"),
            Some(Cause::Uninitialised(cause)) => diagnostic
                .also(*cause, "this load reads memory that nothing was written to")
                .help("write the array before it is read"),
            None => diagnostic,
        })
    }

    pub(crate) fn element(&self, marks: &Marks, index: usize, span: Span, reached: &str) -> Ran<()> {
        match marks.as_ref().map_or(0, |marks| marks[index]) {
            0 => Ok(()),
            mark => Err(self.undetermined(mark, span, reached)),
        }
    }

    pub(crate) fn branch(&self, reg: Reg, span: Span) -> Ran<()> {
        match self.registers[reg.0 as usize] {
            0 => Ok(()),
            mark => Err(self.undetermined(mark, span, "a branch or a loop's bounds")),
        }
    }

    pub(crate) fn address(&self, reg: Reg, span: Span) -> Ran<()> {
        match self.registers[reg.0 as usize] {
            0 => Ok(()),
            mark => Err(self.undetermined(mark, span, "an address")),
        }
    }

    pub(crate) fn address_place(&self, place: Place, count: usize, span: Span) -> Ran<()> {
        self.all_determined(place, count, span, "an address")
    }

    pub(crate) fn stored_place(&self, place: Place, count: usize, span: Span) -> Ran<()> {
        self.all_determined(place, count, span, "this store")
    }

    fn all_determined(&self, place: Place, count: usize, span: Span, reached: &str) -> Ran<()> {
        match self.marks(place, 0, count).into_iter().flatten().find(|&mark| mark != 0) {
            None => Ok(()),
            Some(mark) => Err(self.undetermined(mark, span, reached)),
        }
    }

    // Memory

    /// A tile that lies wholly outside its array.
    pub(crate) fn outside(&self, access: &Access, kind: Kind) -> Ran<()> {
        // Indices that come from a tile are bounded by the program: it may well have none inside.
        if access.axes.iter().any(|axis| axis.gather.is_some()) {
            return Ok(());
        }
        let what = if kind == Kind::Read { "loaded" } else { "stored" };
        Err(Box::new(
            Diagnostic::error("cpu-tile-outside", access.span, format!("the tile {what} here lies wholly outside the array"))
                .help("the index counts tiles, not elements; check it and the grid against the array's size"),
        ))
    }

    /// A tile that a program promised to lie inside the array does not.
    pub(crate) fn promised_inside(&self, access: &Access, kind: Kind) -> Ran<()> {
        let what = if kind == Kind::Read { "loaded" } else { "stored" };
        let message = format!("the tile {what} here crosses the array's edge, but its bounds are not checked");
        let help = "leave out `check_bounds=False`, or choose tiles that divide the array";
        Err(Box::new(Diagnostic::error("cpu-unchecked-bounds", access.span, message).help(help)))
    }

    fn span_number(&mut self, span: Span) -> u16 {
        let known = self.spans.iter().position(|s| *s == span);
        known.unwrap_or_else(|| {
            if self.spans.len() < usize::from(u16::MAX) {
                self.spans.push(span);
            }
            self.spans.len() - 1
        }) as u16
    }

    /// Notes an access and reports a conflict; the mark of what is read.
    pub(crate) fn touch(&mut self, kind: Kind, address: u64, bytes: usize, span: Span) -> Ran<u8> {
        let inside = |shadow: &Shadow| address >= shadow.range.start && address + bytes as u64 <= shadow.range.end;
        let Some(at) = self.shadows.iter().position(inside) else { return Ok(0) };
        let number = self.span_number(span);
        let (block, ordered) = (self.block, self.ordered);
        let shadow = &mut self.shadows[at];
        if shadow.cells.is_empty() {
            let len = (shadow.range.end - shadow.range.start) as usize;
            shadow.cells.resize(len, Cell::default());
        }
        let first = (address - shadow.range.start) as usize;
        let mut unwritten = false;
        let mut clash: Option<(u16, u32, &str)> = None;
        for cell in &mut shadow.cells[first..first + bytes] {
            let foreign = |other: u32| other != 0 && other != block;
            match kind {
                Kind::Read => {
                    unwritten |= shadow.uninitialised && !cell.written;
                    if foreign(cell.writer) && !cell.atomic && !ordered {
                        clash = Some((cell.writer_span, cell.writer, "is written here"));
                    }
                    if !ordered {
                        if cell.reader == 0 || cell.reader == block {
                            (cell.reader, cell.reader_span) = (block, number);
                        } else {
                            (cell.other_reader, cell.other_span) = (block, number);
                        }
                    }
                }
                Kind::Write | Kind::Atomic => {
                    let atomic = kind == Kind::Atomic;
                    if !(ordered || atomic && cell.atomic) {
                        if foreign(cell.writer) {
                            clash = Some((cell.writer_span, cell.writer, "is written here too"));
                        } else if foreign(cell.reader) && !atomic {
                            clash = Some((cell.reader_span, cell.reader, "is read here"));
                        } else if foreign(cell.other_reader) && !atomic {
                            clash = Some((cell.other_span, cell.other_reader, "is read here"));
                        }
                    }
                    cell.written = true;
                    if !ordered {
                        (cell.writer, cell.writer_span, cell.atomic) = (block, number, atomic);
                    }
                }
            }
        }
        if let Some((other_span, other, verb)) = clash {
            return Err(self.conflict(kind, span, other_span, other, verb));
        }
        Ok(if unwritten { self.cause(Cause::Uninitialised(span)) } else { 0 })
    }

    fn conflict(&self, kind: Kind, span: Span, other_span: u16, other: u32, verb: &str) -> Box<Diagnostic> {
        let name = |number: u32| {
            let index = number - 1;
            let (x, rest) = (index % self.grid[0], index / self.grid[0]);
            format!("({x}, {}, {})", rest % self.grid[1], rest / self.grid[1])
        };
        let what = match kind {
            Kind::Read => "reads memory that another block writes",
            Kind::Write => "writes memory that another block touches",
            Kind::Atomic => "updates memory that another block writes without atomics",
        };
        let message = format!("block {} {what}, and nothing orders the two", name(self.block));
        let mut diagnostic = Diagnostic::error("cpu-conflict", span, message).label("here");
        if let Some(&place) = self.spans.get(other_span as usize) {
            diagnostic = diagnostic.also(place, format!("it {verb} by block {}", name(other)));
        }
        Box::new(diagnostic.help("give each block bytes of its own, or use atomics"))
    }
}
