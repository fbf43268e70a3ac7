//! Random PTX: modules of small kernels from the rows, reproducible from a seed.
//!
//! A kernel of the **single** kind does one instruction after the other, each from the inputs alone and each with a result of
//! its own, so that a difference names its instruction. A **program** works on a handful of registers with branches, loops,
//! guards, memory and warp instructions, and shows all registers at the end. A **traced** program is one that also writes down
//! what every instruction gave, so that the first that differs can be named.

use std::fmt::Write;

use crate::rows::{ALONE, FLOAT, INTEGER, MEMORY, TOGETHER, keeps_its_guard};
use crate::values::{CLASSES, EACH, Form, INPUT_BYTES, PREDICATES, Stream, value};

/// Instructions of a kernel of the single kind.
const SINGLES: usize = 24;
/// Bytes of a traced result: the step's number from one, and behind eight bytes the value.
pub(crate) const RECORD: usize = 16;
/// Results that a traced thread can give: all rows, three results each, in three loops of four turns.
pub(crate) const RECORDS: usize = 34 * 3 * 64;

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

    pub(crate) fn is_single(self) -> bool {
        matches!(self, Kind::SingleInteger | Kind::SingleFloat)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::SingleInteger => "integer instructions",
            Kind::SingleFloat => "floating-point instructions",
            Kind::Integer => "integer programs",
            Kind::Float => "floating-point programs",
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
    /// Bytes of a thread's output; a trace is the last `RECORD * RECORDS` of them.
    pub(crate) bytes: usize,
    /// What a traced program writes down: an instruction and one of its results.
    pub(crate) steps: Vec<Step>,
}

/// One result of one instruction.
pub(crate) struct Step {
    pub(crate) text: String,
    pub(crate) register: String,
    pub(crate) form: Form,
}

/// What is open around an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// An arm of a branch on this predicate.
    Arm(u64),
    Loop,
}

struct Writer<'s> {
    stream: &'s mut Stream,
    text: String,
    labels: u32,
    /// The loops and branches around: each loop has a counter of its own.
    open: Vec<Open>,
    left: usize,
    float: bool,
    /// Whether the halves of a floating-point program are bf16.
    bf16: bool,
    traced: bool,
    steps: Vec<Step>,
}

impl Writer<'_> {
    fn in_loop(&self) -> bool {
        self.open.contains(&Open::Loop)
    }

    /// A predicate to write. In a loop inside of an arm, ptxas 13.0 takes the branch's own predicate to be what it was at the branch,
    /// whatever the loop writes to it.
    fn writable(&mut self) -> u64 {
        loop {
            let chosen = self.stream.below(PREDICATES);
            let arm = self.open.iter().position(|&open| open == Open::Arm(chosen));
            if arm.is_none_or(|arm| !self.open[arm..].contains(&Open::Loop)) {
                return chosen;
            }
        }
    }

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

    /// A row with its choices made, and what it writes: random registers, or `own` ones.
    fn filled(&mut self, row: &str, own: bool) -> (String, Vec<(char, String)>) {
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
                    let name = match class {
                        _ if own => format!("%{class}d{}", results.len()),
                        'p' => format!("%p{}", self.writable()),
                        _ => format!("%{class}{}", self.stream.below(EACH)),
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
                        let count = if class == 'p' { PREDICATES } else { EACH };
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
        // Vectors of results are named in the row.
        if let Some((_, named)) = row.split_once("{%") {
            let names = named.split('}').next().unwrap_or_default();
            results.extend(names.split(", %").filter_map(|name| Some((name.chars().next()?, format!("%{name}")))));
        }
        (out, results)
    }

    fn row(&mut self) -> String {
        let list = match (self.stream.below(10), self.open.len()) {
            (0, 0) => TOGETHER,
            (1 | 2, _) => MEMORY,
            (3.., _) if self.float && self.stream.below(6) != 0 => FLOAT,
            _ => INTEGER,
        };
        let floats = std::ptr::eq(list, FLOAT);
        let bf16 = self.bf16;
        // A half is read as what it was written as. An integer that is narrowed may come from a float: ptxas makes one conversion of the
        // two, and a NaN becomes another integer.
        let foreign = |row: &str, text: &str| {
            let other = if bf16 { text.replace("bf16", "").contains("f16") } else { text.contains("bf16") };
            let half = row.contains("=h") || row.contains("$h") || row.contains("%h0") || row.contains("%short");
            other || (!floats && (half || row.starts_with("cvt")))
        };
        let mut row = self.stream.pick(list);
        let (mut text, mut results) = self.filled(row, false);
        while self.float && foreign(row, &text) {
            row = self.stream.pick(list);
            (text, results) = self.filled(row, false);
        }
        // One instruction may have a guard; those that lanes do together have none.
        let single = !std::ptr::eq(list, TOGETHER) && text.matches(';').count() == 1;
        let again = results.iter().any(|(_, name)| text.matches(name.as_str()).count() > 1);
        let guard = match self.stream.below(8) {
            0 if single && keeps_its_guard(row, again && self.in_loop()) => {
                format!("@{}%p{} ", self.stream.pick(&["", "!"]), self.stream.below(PREDICATES))
            }
            _ => String::new(),
        };
        let mut line = format!("    {guard}{text}\n");
        if self.traced {
            for (class, register) in results {
                let form = if self.float { Form::of(class, bf16) } else { Form::Bits };
                line.push_str(&self.record(class, &register, format!("{guard}{text}"), form));
            }
        }
        line
    }

    /// Writes a result down, behind the last one.
    fn record(&mut self, class: char, register: &str, text: String, form: Form) -> String {
        self.steps.push(Step { text, register: register.to_owned(), form });
        let (register, stores) = widened(class, register);
        let bits = if matches!(class, 'd' | 'g') { 64 } else { 32 };
        let number = self.steps.len();
        format!(
            "{stores}    st.global.b{bits} [%log+8], {register};\n    mov.b32 %half, {number};\n    st.global.b32 [%log], %half;\n    \
             add.u64 %log, %log, {RECORD};\n"
        )
    }

    /// A few rows in a loop or an arm, with what else opens there.
    fn inside(&mut self, open: Open) {
        self.open.push(open);
        self.block();
        self.open.pop();
    }

    fn block(&mut self) {
        let own = 2 + self.stream.below(8) as usize;
        for _ in 0..own {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let row = self.row();
            self.text.push_str(&row);
            let level = self.open.len();
            if level >= 3 {
                continue;
            }
            let label = self.labels;
            match self.stream.below(12) {
                0 => {
                    self.labels += 1;
                    let p = self.stream.below(PREDICATES);
                    let _ = writeln!(self.text, "    @%p{p} bra other{label};");
                    self.inside(Open::Arm(p));
                    let _ = writeln!(self.text, "    bra.uni both{label};\nother{label}:");
                    self.inside(Open::Arm(p));
                    let _ = writeln!(self.text, "both{label}:");
                }
                1 => {
                    self.labels += 1;
                    let r = self.stream.below(EACH);
                    // Lanes go round between one and four times.
                    let _ = writeln!(self.text, "    and.b32 %turns{level}, %r{r}, 3;\nagain{label}:");
                    self.inside(Open::Loop);
                    let _ = writeln!(self.text, "    sub.u32 %turns{level}, %turns{level}, 1;");
                    let _ = writeln!(self.text, "    setp.ge.s32 %more{level}, %turns{level}, 0;");
                    let _ = writeln!(self.text, "    @%more{level} bra again{label};");
                }
                _ => {}
            }
        }
    }
}

const OPENING: &str = "
{
    .reg .pred %p<4>, %more<4>, %pd<8>;
    .reg .b16 %h<8>, %hd<8>, %e<8>, %ed<8>, %short;
    .reg .b32 %r<8>, %f<8>, %q<8>, %rd<8>, %fd<8>, %qd<8>, %turns<4>, %t, %mine, %half;
    .reg .b64 %d<8>, %g<8>, %dd<8>, %gd<8>, %in, %out, %o, %log, %long;
    .shared .align 8 .b8 memory[2048];
    .local .align 8 .b8 stack[32];
    mov.u32 %t, %tid.x;
    mov.u32 %mine, memory;
    mad.lo.u32 %mine, %t, 32, %mine;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
";

/// One kernel behind another in `text`.
fn kernel(stream: &mut Stream, kind: Kind, name: &str, traced: bool, text: &mut String) -> Program {
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
    let float = matches!(kind, Kind::SingleFloat | Kind::Float);
    let left = 6 + stream.below(28) as usize;
    let bf16 = stream.below(2) == 0;
    let (open, steps) = (Vec::new(), Vec::new());
    let mut writer = Writer { stream, text: String::new(), labels: 0, open, left, float, bf16, traced, steps };
    let mut body = String::new();
    if kind.is_single() {
        for _ in 0..SINGLES {
            let list = match writer.stream.below(20) {
                0 | 1 => TOGETHER,
                2 => ALONE,
                _ if float => FLOAT,
                _ => INTEGER,
            };
            let row = writer.stream.pick(list);
            // These name their results themselves.
            if row.contains("{%") {
                continue;
            }
            let (line, own) = writer.filled(row, true);
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
            writer.block();
        }
        body = std::mem::take(&mut writer.text);
        for (class, width) in CLASSES.into_iter().chain([('p', 4)]) {
            for index in 0..if class == 'p' { PREDICATES } else { EACH } {
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
    let log = bytes;
    bytes += if traced { RECORD * RECORDS } else { 0 };
    let _ = writeln!(text, "    mul.wide.u32 %o, %t, {bytes};\n    add.u64 %out, %out, %o;\n    add.u64 %log, %out, {log};");
    text.push_str(&body);
    text.push_str("    ret;\n}\n");
    Program { name: name.to_owned(), results, bytes, steps: writer.steps }
}

/// A register that can be stored as 32 or 64 bits, and what makes it.
fn widened(class: char, register: &str) -> (String, String) {
    match class {
        'h' | 'e' => ("%half".to_owned(), format!("    cvt.u32.u16 %half, {register};\n")),
        'p' => ("%half".to_owned(), format!("    selp.b32 %half, 1, 0, {register};\n")),
        _ => (register.to_owned(), String::new()),
    }
}

const HEAD: &str = ".version 8.6\n.target sm_90a\n.address_size 64\n";

/// A module of `count` kernels.
pub(crate) fn module(seed: u64, kind: Kind, count: usize) -> (String, Vec<Program>) {
    let mut stream = Stream::new(seed);
    let mut text = HEAD.to_owned();
    let programs = (0..count).map(|index| kernel(&mut stream, kind, &format!("k{index}"), false, &mut text)).collect();
    (text, programs)
}

/// One kernel of that module, which writes down what every instruction gives.
pub(crate) fn traced(seed: u64, kind: Kind, index: usize) -> (String, Program) {
    let mut stream = Stream::new(seed);
    for before in 0..index {
        kernel(&mut stream, kind, &format!("k{before}"), false, &mut String::new());
    }
    let mut text = HEAD.to_owned();
    let program = kernel(&mut stream, kind, &format!("k{index}"), true, &mut text);
    (text, program)
}
