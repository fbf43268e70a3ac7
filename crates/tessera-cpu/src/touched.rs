//! Who touched which byte, and what touches it that nothing orders.
//!
//! Every byte of every argument remembers its last writer and two that read it, with the operations. Who touches is a number: blocks are told
//! apart here, threads of a block in lock-step by themselves ([`Cell`]). One that writes what another touches, or reads what another wrote,
//! clashes with it, unless
//!
//! - both are in an order that others see (`relaxed` and stronger) or atomic: [`Kind::Atomic`], [`Kind::Look`];
//! - the write leaves memory as it was: all writers write one value, and no value differs (*formal* in `docs/emulator.md`);
//! - something orders the two, which whoever asks knows.

use tessera_ir::{Diagnostic, Span};

use crate::exec::{Ran, Range};

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    /// A read in an order that others see.
    Look,
    Write,
    /// An update, or a write in an order that others see.
    Atomic,
}

impl Kind {
    pub(crate) fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::Look)
    }

    /// As those take it whom its order does not reach.
    pub(crate) fn unordered(self) -> Kind {
        match self {
            Kind::Read | Kind::Look => Kind::Read,
            Kind::Write | Kind::Atomic => Kind::Write,
        }
    }
}

/// An access to some bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) kind: Kind,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    /// What is written, where that is known.
    pub(crate) value: Option<u64>,
    pub(crate) span: Span,
}

/// One byte of an access: who it is by (numbers start at 1), and whether a write leaves the byte as it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteTouch {
    pub(crate) by: u32,
    pub(crate) kind: Kind,
    pub(crate) quiet: bool,
    /// The operation, by its number among [`Spans`].
    pub(crate) span: u16,
}

/// Who touched a byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    writer: u32,
    reader: u32,
    other_reader: u32,
    writer_span: u16,
    reader_span: u16,
    other_span: u16,
    /// The last writer's access was atomic; it left the byte as it was.
    atomic: bool,
    quiet: bool,
    /// Readers that did no more than look.
    looks: bool,
    other_looks: bool,
}

/// An earlier access that a new one clashes with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clash {
    pub(crate) by: u32,
    pub(crate) span: u16,
    pub(crate) what: &'static str,
}

impl Cell {
    /// Notes an access, and finds an earlier one that it clashes with; `apart` says of another that nothing orders the two.
    pub(crate) fn note(&mut self, touch: ByteTouch, apart: impl Fn(u32) -> bool) -> Option<Clash> {
        let apart = |other: u32| other != 0 && other != touch.by && apart(other);
        if touch.kind.reads() { self.note_read(touch, apart) } else { self.note_write(touch, apart) }
    }

    fn note_read(&mut self, touch: ByteTouch, apart: impl Fn(u32) -> bool) -> Option<Clash> {
        let looks = touch.kind == Kind::Look;
        let excused = self.quiet || self.atomic && looks;
        let clash = (apart(self.writer) && !excused).then_some(Clash {
            by: self.writer,
            span: self.writer_span,
            what: "is written here",
        });
        if !apart(self.reader) {
            let looks = looks && (self.reader != touch.by || self.looks);
            (self.reader, self.reader_span, self.looks) = (touch.by, touch.span, looks);
        } else {
            let looks = looks && (self.other_reader != touch.by || self.other_looks);
            (self.other_reader, self.other_span, self.other_looks) = (touch.by, touch.span, looks);
        }
        clash
    }

    fn note_write(&mut self, touch: ByteTouch, apart: impl Fn(u32) -> bool) -> Option<Clash> {
        let atomic = touch.kind == Kind::Atomic;
        let clash = if touch.quiet {
            None
        } else if apart(self.writer) && !(atomic && self.atomic) {
            Some(Clash { by: self.writer, span: self.writer_span, what: "is written here too" })
        } else if apart(self.reader) && !(atomic && self.looks) {
            Some(Clash { by: self.reader, span: self.reader_span, what: "is read here" })
        } else if apart(self.other_reader) && !(atomic && self.other_looks) {
            Some(Clash { by: self.other_reader, span: self.other_span, what: "is read here" })
        } else {
            None
        };
        // What one has changed stays changed, whatever it writes afterwards.
        self.quiet = touch.quiet && (self.writer != touch.by || self.quiet);
        (self.writer, self.writer_span, self.atomic) = (touch.by, touch.span, atomic);
        clash
    }
}

/// Operations by number.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    pub(crate) fn number(&mut self, span: Span) -> u16 {
        let known = self.0.iter().position(|s| *s == span);
        known.unwrap_or_else(|| {
            // The last number stands for all further operations.
            if self.0.len() < usize::from(u16::MAX) {
                self.0.push(span);
            }
            self.0.len() - 1
        }) as u16
    }

    pub(crate) fn of(&self, number: u16) -> Span {
        self.0[usize::from(number)]
    }
}

/// The memory of one allocation; cells come with the first access.
struct Shadow {
    range: Range,
    uninitialised: bool,
    cells: Vec<Cell>,
    written: Vec<bool>,
}

/// The launch's memory, as its blocks touch it one after another.
pub(crate) struct Touched {
    shadows: Vec<Shadow>,
    spans: Spans,
    grid: [u32; 3],
    block: u32,
}

impl Touched {
    /// `uninitialised` holds positions of ranges whose memory holds nothing yet.
    pub(crate) fn new(ranges: &[Range], uninitialised: &[usize], grid: [u32; 3]) -> Touched {
        let shadow = |(i, &range): (usize, &Range)| Shadow {
            range,
            uninitialised: uninitialised.contains(&i),
            cells: Vec::new(),
            written: Vec::new(),
        };
        Touched { shadows: ranges.iter().enumerate().map(shadow).collect(), spans: Spans::default(), grid, block: 0 }
    }

    pub(crate) fn start_block(&mut self, block: [u32; 3]) {
        self.block = 1 + block[0] + self.grid[0] * (block[1] + self.grid[1] * block[2]);
    }

    /// For each range whose memory held nothing, in the order of their positions, which bytes were written: under whatever name.
    pub(crate) fn written(&self, positions: &[usize]) -> Vec<Vec<bool>> {
        let of = |&position: &usize| {
            let range = self.shadows[position].range;
            let mut written = vec![false; (range.end - range.start) as usize];
            for shadow in self.shadows.iter().filter(|shadow| !shadow.cells.is_empty()) {
                let (start, end) = (range.start.max(shadow.range.start), range.end.min(shadow.range.end));
                (start..end)
                    .for_each(|at| written[(at - range.start) as usize] |= shadow.written[(at - shadow.range.start) as usize]);
            }
            written
        };
        positions.iter().map(of).collect()
    }

    /// Notes an access of the current block; true where it reads what nobody wrote. What is `ordered` after other blocks is not compared with
    /// theirs, nor theirs with it.
    pub(crate) fn touch(&mut self, touch: Touch, ordered: bool) -> Ran<bool> {
        let Touch { kind, address, bytes, value, span } = touch;
        let Some(at) = self.shadows.iter().position(|shadow| shadow.range.holds(address, bytes)) else { return Ok(false) };
        let number = self.spans.number(span);
        let by = self.block;
        let shadow = &mut self.shadows[at];
        if shadow.cells.is_empty() {
            let len = (shadow.range.end - shadow.range.start) as usize;
            shadow.cells.resize(len, Cell::default());
            shadow.written.resize(len, false);
        }
        let first = (address - shadow.range.start) as usize;
        let mut unwritten = false;
        let mut clash = None;
        for i in 0..bytes {
            let written = &mut shadow.written[first + i];
            let held = !shadow.uninitialised || *written;
            if kind.reads() {
                unwritten |= !held;
            } else {
                *written = true;
            }
            if !ordered {
                // SAFETY: the byte lies in memory that the launch was promised to be valid.
                let now = unsafe { *((address + i as u64) as usize as *const u8) };
                let quiet = held && value.is_some_and(|value| value.to_le_bytes()[i] == now);
                clash = shadow.cells[first + i].note(ByteTouch { by, kind, quiet, span: number }, |_| true).or(clash);
            }
        }
        match clash {
            Some(clash) => Err(self.block_conflict(kind, span, clash)),
            None => Ok(unwritten),
        }
    }

    /// Whether these bytes are the launch's.
    pub(crate) fn holds(&self, address: u64, bytes: usize) -> bool {
        self.shadows.iter().any(|shadow| shadow.range.holds(address, bytes))
    }

    fn block_conflict(&self, kind: Kind, span: Span, clash: Clash) -> Box<Diagnostic> {
        let name = |number: u32| {
            let index = number - 1;
            let (x, rest) = (index % self.grid[0], index / self.grid[0]);
            format!("block ({x}, {}, {})", rest % self.grid[1], rest / self.grid[1])
        };
        let names = [name(self.block), name(clash.by)];
        conflict("block", kind, [span, self.spans.of(clash.span)], names, clash.what)
            .help("give each block bytes of its own, or use atomics of scope `device`")
            .into()
    }
}

/// What is said of an access and an earlier one, each with its place and by whom it is: by blocks or by threads, as `noun` says.
pub(crate) fn conflict(noun: &str, kind: Kind, places: [Span; 2], names: [String; 2], earlier: &str) -> Diagnostic {
    let what = match kind {
        Kind::Read | Kind::Look => format!("reads memory that another {noun} writes"),
        Kind::Write => format!("writes memory that another {noun} touches"),
        Kind::Atomic => format!("updates memory that another {noun} touches without atomics that reach it"),
    };
    let message = format!("{} {what}, and nothing orders the two", names[0]);
    Diagnostic::error("cpu-conflict", places[0], message).label("here").also(places[1], format!("it {earlier} by {}", names[1]))
}
