//! Random PTX: modules of small kernels from the rows, reproducible from a seed.
//!
//! A kernel of the **single** kind does one instruction after the other, each from the inputs alone and each with a result of
//! its own, so that a difference names its instruction. A **program** works on a handful of registers with branches, loops,
//! guards, memory and warp instructions, and shows all registers at the end.

use std::fmt::Write;

use tessera_bench::Random;

use crate::rows::{FLOAT, INTEGER, MEMORY, TOGETHER};

/// Threads of a kernel: two warps, in one block.
pub(crate) const THREADS: usize = 64;
/// Registers of each class.
const EACH: u64 = 8;
/// The classes with inputs, and the bytes of a register there.
pub(crate) const CLASSES: [(char, usize); 7] = [('d', 8), ('g', 8), ('r', 4), ('f', 4), ('q', 4), ('h', 4), ('e', 4)];
/// Bytes of a thread's inputs.
pub(crate) const INPUT_BYTES: usize = 8 * (8 + 8 + 4 + 4 + 4 + 4 + 4);
/// Instructions of a kernel of the single kind.
const SINGLES: usize = 24;

/// A stream of numbers.
pub(crate) struct Stream(Random);

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream(Random::new(seed))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SingleInteger,
    SingleFloat,
    Integer,
    Float,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::SingleInteger, Kind::SingleFloat, Kind::Integer, Kind::Float];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::SingleInteger => "integer instructions",
            Kind::SingleFloat => "floating-point instructions",
            Kind::Integer => "integer programs",
            Kind::Float => "floating-point programs",
        }
    }
}

/// How the bits of a result are compared: NaNs are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Bits,
    F32,
    F64,
    F16,
    Bf16,
}

impl Form {
    fn of(class: char, bf16: bool) -> Form {
        match class {
            'f' => Form::F32,
            'g' => Form::F64,
            'h' | 'q' if bf16 => Form::Bf16,
            'h' | 'q' => Form::F16,
            _ => Form::Bits,
        }
    }

    /// The bits with every NaN made the same.
    pub(crate) fn canonical(self, bits: u64) -> u64 {
        let half = |bits: u64, infinity: u64| if bits & 0x7fff > infinity { 0x7fff } else { bits };
        let pair = |infinity| half(bits & 0xffff, infinity) | half(bits >> 16 & 0xffff, infinity) << 16 | bits >> 32 << 32;
        match self {
            Form::Bits => bits,
            Form::F32 if bits & 0x7fff_ffff > 0x7f80_0000 => 0x7fff_ffff,
            Form::F64 if bits & !(1 << 63) > 0x7ff0_0000_0000_0000 => !(1 << 63),
            Form::F32 | Form::F64 => bits,
            Form::F16 => pair(0x7c00),
            Form::Bf16 => pair(0x7f80),
        }
    }
}

/// A result in a thread's output.
pub(crate) struct Shown {
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) what: String,
    pub(crate) form: Form,
}

/// One kernel and its results.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) results: Vec<Shown>,
    pub(crate) bytes: usize,
}

const WORDS: [u64; 14] =
    [0, 1, 2, 7, 31, 32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7f80_0000, 0x3f80_0000, 0x0080_0000, 0x7fff, 0x8000];

/// Interesting and random bits of a class.
fn value(stream: &mut Stream, class: char) -> u64 {
    let float = |stream: &mut Stream, bits: u32, fraction: u32| {
        let sign = stream.below(2) << (bits - 1);
        let top = (1u64 << (bits - 1 - fraction)) - 1;
        let bias = top >> 1;
        let exponent = match stream.below(8) {
            0 => 0,
            1 => top,
            2 => bias.saturating_sub(fraction.into()) + stream.below(2 * u64::from(fraction)),
            3 => stream.below(top + 1),
            _ => bias - 4 + stream.below(9),
        };
        let digits = match stream.below(4) {
            0 => 0,
            1 => stream.bits() & !((1 << (fraction * 2 / 3)) - 1),
            _ => stream.bits(),
        };
        sign | exponent.min(top) << fraction | (digits & ((1 << fraction) - 1))
    };
    match class {
        'f' => float(stream, 32, 23),
        'g' => float(stream, 64, 52),
        'q' => value(stream, 'h') << 16 | value(stream, 'h'),
        'e' => stream.bits() & 0xffff,
        'h' if stream.below(3) == 0 => float(stream, 16, 10),
        'h' if stream.below(3) == 0 => float(stream, 16, 7),
        'h' => stream.bits() >> stream.below(16) & 0xffff,
        'r' if stream.below(4) == 0 => stream.pick(&WORDS),
        'r' if stream.below(5) == 0 => float(stream, 16, 10) << 16 | float(stream, 16, 10),
        'r' if stream.below(5) == 0 => float(stream, 32, 23),
        'r' => stream.bits() & 0xffff_ffff & (u64::MAX >> (32 + stream.below(32))),
        'd' if stream.below(4) == 0 => {
            let word = stream.pick(&WORDS);
            if stream.below(2) == 0 { word } else { word << 32 }
        }
        _ => stream.bits() >> stream.below(60),
    }
}

/// The inputs of every thread, class by class.
pub(crate) fn inputs(seed: u64) -> Vec<u8> {
    let mut stream = Stream::new(seed);
    let mut bytes = Vec::with_capacity(INPUT_BYTES * THREADS);
    for _ in 0..THREADS {
        for (class, width) in CLASSES {
            for _ in 0..EACH {
                // A half lies in the low bits of a word.
                bytes.extend(&value(&mut stream, class).to_le_bytes()[..width]);
            }
        }
    }
    bytes
}

struct Writer<'s> {
    stream: &'s mut Stream,
    text: String,
    labels: u32,
    /// Loops that are open: each has a counter of its own.
    depth: usize,
    left: usize,
    float: bool,
    /// Whether the halves of a floating-point program are bf16.
    bf16: bool,
}

impl Writer<'_> {
    fn immediate(&mut self, class: char) -> String {
        let bits = value(self.stream, class);
        match class {
            'f' => format!("0f{bits:08X}"),
            'g' => format!("0d{bits:016X}"),
            'h' => format!("{}", bits as i16),
            'r' => format!("{}", bits as u32 as i32),
            _ => format!("{}", bits as i64),
        }
    }

    /// A row with its choices made. `own` gives destinations; without it they are random.
    fn filled(&mut self, row: &str, own: Option<&mut Vec<(char, String)>>) -> String {
        let mut out = String::new();
        let mut results = Vec::new();
        let mut plain = String::new();
        let mut rest = row;
        while let Some(open) = rest.find('[') {
            let inside = &rest[open + 1..];
            let close = inside.find(']').unwrap_or(inside.len());
            let choices: Vec<&str> = inside[..close].split('|').collect();
            plain.push_str(&rest[..open]);
            // An address in brackets is no choice.
            match choices[..] {
                [address] => drop(write!(plain, "[{address}]")),
                _ => plain.push_str(self.stream.pick(&choices)),
            }
            rest = &inside[(close + 1).min(inside.len())..];
        }
        plain.push_str(rest);
        // Halves take no immediates where they are floats, packed instructions none at all.
        let fixed = plain.contains("f16")
            || plain.contains("x2")
            || plain.contains("e4m3")
            || plain.contains("e5m2")
            || plain.starts_with("mov")
            || plain.starts_with("bf")
            || plain.starts_with('v');
        let shared = plain.contains(".shared");
        let mut last_was_immediate = false;
        let mut chars = plain.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '=' => {
                    let class = chars.next().unwrap_or('r');
                    let name = match &own {
                        Some(_) => format!("%{class}d{}", results.len()),
                        None => format!("%{class}{}", self.stream.below(if class == 'p' { 4 } else { EACH })),
                    };
                    results.push((class, name.clone()));
                    out.push_str(&name);
                }
                '$' => {
                    let class = chars.next().unwrap_or('r');
                    let immediate = !fixed && class != 'p' && !last_was_immediate && self.stream.below(8) == 0;
                    last_was_immediate = immediate;
                    if immediate {
                        let number = self.immediate(class);
                        out.push_str(&number);
                    } else {
                        let count = if class == 'p' { 4 } else { EACH };
                        let _ = write!(out, "%{class}{}", self.stream.below(count));
                    }
                }
                '#' => {
                    let mut bound = 0;
                    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                        bound = bound * 10 + u64::from(digit);
                        chars.next();
                    }
                    let _ = write!(out, "{}", self.stream.below(bound.max(1)));
                }
                'M' if chars.clone().collect::<String>().starts_with("INE") => {
                    chars.by_ref().take(3).for_each(drop);
                    let mut bits = 0;
                    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                        bits = bits * 10 + u64::from(digit);
                        chars.next();
                    }
                    let base = if shared { "%mine" } else { "stack" };
                    let _ = write!(out, "{base}+{}", self.stream.below(256 / bits) * bits / 8);
                }
                other => out.push(other),
            }
        }
        if let Some(own) = own {
            *own = results;
        }
        out
    }

    fn row(&mut self) -> String {
        let list = match (self.stream.below(10), self.depth) {
            (0, 0) => TOGETHER,
            (1 | 2, _) => MEMORY,
            (3.., _) if self.float && self.stream.below(6) != 0 => FLOAT,
            _ => INTEGER,
        };
        let mut row = self.stream.pick(list);
        let mut text = self.filled(row, None);
        // A half is read as what it was written as.
        let bf16 = self.bf16;
        let foreign = |row: &str, text: &str| {
            let other = if bf16 { text.replace("bf16", "").contains("f16") } else { text.contains("bf16") };
            other || (!std::ptr::eq(list, FLOAT) && (row.contains("=h") || row.contains("$h") || row.contains("%h0")))
        };
        while self.float && foreign(row, &text) {
            row = self.stream.pick(list);
            text = self.filled(row, None);
        }
        // One instruction may have a guard; those that lanes do together have none.
        let guard = match self.stream.below(8) {
            0 if !std::ptr::eq(list, TOGETHER) && text.matches(';').count() == 1 => {
                format!("@{}%p{} ", self.stream.pick(&["", "!"]), self.stream.below(4))
            }
            _ => String::new(),
        };
        format!("    {guard}{text}\n")
    }

    fn block(&mut self, inside: usize) {
        self.depth += inside;
        let own = 2 + self.stream.below(8) as usize;
        for _ in 0..own {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let row = self.row();
            self.text.push_str(&row);
            if self.depth >= 3 {
                continue;
            }
            let label = self.labels;
            match self.stream.below(12) {
                0 => {
                    self.labels += 1;
                    let p = self.stream.below(4);
                    let _ = writeln!(self.text, "    @%p{p} bra other{label};");
                    self.block(1);
                    let _ = writeln!(self.text, "    bra.uni both{label};\nother{label}:");
                    self.block(1);
                    let _ = writeln!(self.text, "both{label}:");
                }
                1 => {
                    self.labels += 1;
                    let (level, r) = (self.depth, self.stream.below(EACH));
                    // Lanes go round between one and four times.
                    let _ = writeln!(self.text, "    and.b32 %turns{level}, %r{r}, 3;\nagain{label}:");
                    self.block(1);
                    let _ = writeln!(self.text, "    sub.u32 %turns{level}, %turns{level}, 1;");
                    let _ = writeln!(self.text, "    setp.ge.s32 %more{level}, %turns{level}, 0;");
                    let _ = writeln!(self.text, "    @%more{level} bra again{label};");
                }
                _ => {}
            }
        }
        self.depth -= inside;
    }
}

const OPENING: &str = "
{
    .reg .pred %p<4>, %more<4>, %pd<8>;
    .reg .b16 %h<8>, %hd<8>, %e<8>, %ed<8>;
    .reg .b32 %r<8>, %f<8>, %q<8>, %rd<8>, %fd<8>, %qd<8>, %turns<4>, %t, %mine, %half;
    .reg .b64 %d<8>, %g<8>, %dd<8>, %gd<8>, %in, %out, %o;
    .shared .align 8 .b8 memory[2048];
    .local .align 8 .b8 stack[32];
    mov.u32 %t, %tid.x;
    mov.u32 %mine, memory;
    mad.lo.u32 %mine, %t, 32, %mine;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
";

/// One kernel behind another in `text`.
fn kernel(stream: &mut Stream, kind: Kind, name: &str, text: &mut String) -> Program {
    let mut bytes = 0_usize;
    let mut results = Vec::new();
    let _ = write!(text, ".visible .entry {name}(.param .u64 in, .param .u64 out)");
    text.push_str(OPENING);
    let _ = writeln!(text, "    mul.wide.u32 %o, %t, {INPUT_BYTES};\n    add.u64 %in, %in, %o;");
    let mut offset = 0;
    for (class, width) in CLASSES {
        for index in 0..EACH {
            if matches!(class, 'h' | 'e') {
                let _ = writeln!(text, "    ld.global.b32 %half, [%in+{offset}];\n    cvt.u16.u32 %{class}{index}, %half;");
            } else {
                let _ = writeln!(text, "    ld.global.b{} %{class}{index}, [%in+{offset}];", width * 8);
            }
            offset += width;
        }
    }
    for index in 0..4 {
        let _ = writeln!(text, "    setp.lt.s32 %p{index}, %r{index}, %r{};", index + 4);
        let _ = writeln!(text, "    st.shared.b64 [%mine+{0}], %d{index};\n    st.local.b64 [stack+{0}], %g{index};", index * 8);
    }
    let single = matches!(kind, Kind::SingleInteger | Kind::SingleFloat);
    let float = matches!(kind, Kind::SingleFloat | Kind::Float);
    let left = 6 + stream.below(28) as usize;
    let bf16 = stream.below(2) == 0;
    let mut writer = Writer { stream, text: String::new(), labels: 0, depth: 0, left, float, bf16 };
    let mut body = String::new();
    if single {
        for _ in 0..SINGLES {
            let list = match writer.stream.below(10) {
                0 => TOGETHER,
                _ if float => FLOAT,
                _ => INTEGER,
            };
            let row = writer.stream.pick(list);
            // These name their results themselves.
            if row.contains("{%") {
                continue;
            }
            let mut own = Vec::new();
            let line = writer.filled(row, Some(&mut own));
            let _ = writeln!(body, "    {line}");
            for (class, register) in own {
                let (register, stores) = widened(class, &register);
                body.push_str(&stores);
                let width = if matches!(class, 'd' | 'g') { 8 } else { 4 };
                bytes = bytes.next_multiple_of(width);
                let _ = writeln!(body, "    st.global.b{} [%out+{bytes}], {register};", width * 8);
                let float = line.contains("f16") || matches!(class, 'f' | 'g');
                let form = if float { Form::of(class, line.contains("bf16")) } else { Form::Bits };
                results.push(Shown { at: bytes, width, what: line.clone(), form });
                bytes += width;
            }
        }
    } else {
        while writer.left > 0 {
            writer.block(0);
        }
        body = writer.text;
        for (class, width) in CLASSES.into_iter().chain([('p', 4)]) {
            for index in 0..if class == 'p' { 4 } else { EACH } {
                let (register, stores) = widened(class, &format!("%{class}{index}"));
                body.push_str(&stores);
                let _ = writeln!(body, "    st.global.b{} [%out+{bytes}], {register};", width * 8);
                let form = if float { Form::of(class, bf16) } else { Form::Bits };
                results.push(Shown { at: bytes, width, what: format!("%{class}{index}"), form });
                bytes += width;
            }
        }
    }
    bytes = bytes.next_multiple_of(8);
    let _ = writeln!(text, "    mul.wide.u32 %o, %t, {bytes};\n    add.u64 %out, %out, %o;");
    text.push_str(&body);
    text.push_str("    ret;\n}\n");
    Program { name: name.to_owned(), results, bytes }
}

/// A register that can be stored as 32 or 64 bits, and what makes it.
fn widened(class: char, register: &str) -> (String, String) {
    match class {
        'h' | 'e' => ("%half".to_owned(), format!("    cvt.u32.u16 %half, {register};\n")),
        'p' => ("%half".to_owned(), format!("    selp.b32 %half, 1, 0, {register};\n")),
        _ => (register.to_owned(), String::new()),
    }
}

/// A module of `count` kernels.
pub(crate) fn module(seed: u64, kind: Kind, count: usize) -> (String, Vec<Program>) {
    let mut stream = Stream::new(seed);
    let mut text = String::from(".version 8.6\n.target sm_90a\n.address_size 64\n");
    let programs = (0..count).map(|index| kernel(&mut stream, kind, &format!("k{index}"), &mut text)).collect();
    (text, programs)
}
