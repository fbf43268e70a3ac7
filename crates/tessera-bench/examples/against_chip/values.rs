//! The values that random programs work on: a stream of random numbers, interesting bits of every class of registers, the inputs
//! made of them, and how results are compared.

use std::collections::BTreeMap;

use tessera_bench::Random;

/// Threads of a kernel: two warps, in one block.
pub(crate) const THREADS: usize = 64;
/// Registers of each class.
pub(crate) const EACH: u64 = 8;
/// Predicates.
pub(crate) const PREDICATES: u64 = 4;
/// The classes with inputs, and the bytes of a register there.
pub(crate) const CLASSES: [(char, usize); 7] = [('d', 8), ('g', 8), ('r', 4), ('f', 4), ('q', 4), ('h', 4), ('e', 4)];
/// Bytes of a thread's inputs.
pub(crate) const INPUT_BYTES: usize = 8 * (8 + 8 + 4 + 4 + 4 + 4 + 4);

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

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
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
    pub(crate) fn of(class: char, bf16: bool) -> Form {
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

const WORDS: [u64; 14] =
    [0, 1, 2, 7, 31, 32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7f80_0000, 0x3f80_0000, 0x0080_0000, 0x7fff, 0x8000];

/// Interesting and random bits of a class.
pub(crate) fn value(stream: &mut Stream, class: char) -> u64 {
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

/// A thread's registers before a program's first instruction.
pub(crate) fn registers(input: &[u8], thread: usize) -> BTreeMap<String, u64> {
    let mut rest = &input[thread * INPUT_BYTES..][..INPUT_BYTES];
    let mut registers = BTreeMap::new();
    for (class, width) in CLASSES {
        for index in 0..EACH {
            let (own, others) = rest.split_at(width);
            registers.insert(format!("%{class}{index}"), word(own));
            rest = others;
        }
    }
    for index in 0..PREDICATES {
        let signed = |index: u64| registers[&format!("%r{index}")] as i32;
        let less = signed(index) < signed(index + 4);
        registers.insert(format!("%p{index}"), less.into());
    }
    registers
}

/// Bytes as a number.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
