//! What checked execution remembers: undetermined elements, and how memory was touched.
//!
//! Every element of every buffer and every register has a mark: 0 for a determined value, else the number of a [`Cause`], the place
//! where the value was left undetermined: by a load, or by a division by zero. Marks spread through operations, but not through what comes out the same whatever the value is
//! ([`combined`]); one that reaches a store, a branch or an address is reported with its cause. What blocks do to each other's bytes is in
//! `touched`.

use tessera_ir::{Diagnostic, Span};

use crate::build::Plan;
use crate::exec::{Ran, Range};
use crate::lanes::{Int, IntOp, LaneOp};
use crate::plan::{Access, Place, Reg};
use crate::touched::{Kind, Touch, Touched};

/// Marks of a strip; `None` where all are 0.
pub(crate) type Marks = Option<Vec<u8>>;

/// Why a value is undetermined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Padding(Span),
    Uninitialised(Span),
    /// By zero.
    Division(Span),
}

/// The state of a checked launch.
pub(crate) struct Check {
    buffers: Vec<Vec<u8>>,
    registers: Vec<u8>,
    causes: Vec<Cause>,
    memory: Touched,
    /// The block has synchronised with others: what it touches from here on is ordered by that.
    ordered: bool,
}

impl Check {
    /// `uninitialised` holds positions of ranges, arguments before allocations, whose memory holds nothing yet.
    pub(crate) fn new(plan: &Plan, ranges: &[Range], uninitialised: &[usize], grid: [u32; 3]) -> Check {
        Check {
            buffers: plan.buffers.iter().map(|buffer| vec![0; buffer.elements]).collect(),
            registers: vec![0; plan.registers.len()],
            causes: Vec::new(),
            memory: Touched::new(ranges, uninitialised, grid),
            ordered: false,
        }
    }

    /// As [`Touched::written`].
    pub(crate) fn written(&self, positions: &[usize]) -> Vec<Vec<bool>> {
        self.memory.written(positions)
    }

    pub(crate) fn start_block(&mut self, block: [u32; 3], registers: usize) {
        self.memory.start_block(block);
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

    pub(crate) fn scalar(&mut self, op: LaneOp, dst: Reg, src: &[Reg; 3], values: [u64; 3], span: Span) {
        // Unused operands name register 0, the first argument or a constant: never marked.
        let marks = src.map(|reg| self.registers[reg.0 as usize]);
        self.registers[dst.0 as usize] = self.result(op, &marks, |operand| values[operand], span);
    }

    /// The mark of a result, given its operands' marks and what they are.
    pub(crate) fn result(&mut self, op: LaneOp, marks: &[u8], value: impl Fn(usize) -> u64, span: Span) -> u8 {
        match combined(op, marks, &value) {
            0 if op.divisor().is_some_and(|width| value(1) & width.mask() == 0) => self.cause(Cause::Division(span)),
            mark => mark,
        }
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
            Some(Cause::Division(cause)) => return division(*cause, span, reached),
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
        match self.marks(place, 0, count).into_iter().flatten().find(|&mark| mark != 0) {
            None => Ok(()),
            Some(mark) => Err(self.undetermined(mark, span, "an address")),
        }
    }

    // Memory

    /// A tile that lies wholly outside its array.
    pub(crate) fn outside(&self, access: &Access, kind: Kind) -> Ran<()> {
        // Indices that come from a tile are bounded by the program: it may well have none inside.
        if access.axes.iter().any(|axis| axis.gather.is_some()) {
            return Ok(());
        }
        let what = if kind.reads() { "loaded" } else { "stored" };
        Err(Box::new(
            Diagnostic::error("cpu-tile-outside", access.span, format!("the tile {what} here lies wholly outside the array"))
                .help("the index counts tiles, not elements; check it and the grid against the array's size"),
        ))
    }

    /// A tile that a program promised to lie inside the array does not.
    pub(crate) fn promised_inside(&self, access: &Access, kind: Kind) -> Ran<()> {
        let what = if kind.reads() { "loaded" } else { "stored" };
        let message = format!("the tile {what} here crosses the array's edge, but its bounds are not checked");
        let help = "leave out `check_bounds=False`, or choose tiles that divide the array";
        Err(Box::new(Diagnostic::error("cpu-unchecked-bounds", access.span, message).help(help)))
    }

    /// Notes an access and reports a conflict; the mark of what is read.
    pub(crate) fn touch(&mut self, touch: Touch) -> Ran<u8> {
        let unwritten = self.memory.touch(touch, self.ordered)?;
        Ok(if unwritten { self.cause(Cause::Uninitialised(touch.span)) } else { 0 })
    }
}

/// The mark of a result: the worst of the operands that it depends on, given what they are.
fn combined(op: LaneOp, marks: &[u8], value: impl Fn(usize) -> u64) -> u8 {
    let worst = || marks.iter().copied().fold(0, u8::max);
    match op {
        LaneOp::Select(_) => marks[0].max(marks[if value(0) & 1 != 0 { 1 } else { 2 }]),
        LaneOp::Int(op, width, signed) => {
            let all = width.mask();
            match settling(op, width, signed) {
                Some(bits) if (0..2).any(|operand| marks[operand] == 0 && value(operand) & all == bits & all) => 0,
                _ => worst(),
            }
        }
        _ => worst(),
    }
}

/// What comes of a division by zero, and what it decides.
pub(crate) fn division(cause: Span, span: Span, reached: &str) -> Box<Diagnostic> {
    let diagnostic = Diagnostic::error("cpu-division", cause, "division by zero").label("the divisor is zero");
    Box::new(diagnostic.also(span, format!("what comes of it reaches {reached}")))
}

/// The bits of an operand with which the result is the same whatever the other one is.
fn settling(op: IntOp, width: Int, signed: bool) -> Option<u64> {
    match op {
        IntOp::And | IntOp::Mul => Some(0),
        // Logic on bytes without a sign is that of truth values, which are 0 and 1.
        IntOp::Or if width == Int::B8 && !signed => Some(1),
        IntOp::Or => Some(u64::MAX),
        _ => None,
    }
}
