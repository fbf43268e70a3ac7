//! Broken kernels end in an error or a finding, never in a panic: lines of real kernels dropped, doubled, swapped, operands exchanged,
//! characters and numbers changed, ends cut off.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, LaunchOptions, Sanitize, Schedule};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn damage(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.below(3) {
        let (at, other) = (random.below(lines.len()), random.below(lines.len()));
        match random.below(7) {
            0 if lines.len() > 1 => {
                lines.remove(at);
            }
            1 => lines.insert(at, lines[other].clone()),
            2 => lines.swap(at, other),
            3 => {
                // Another register of the same line.
                let mut words: Vec<String> = lines[at].split(' ').map(str::to_owned).collect();
                let (a, b) = (random.below(words.len()), random.below(words.len()));
                words.swap(a, b);
                lines[at] = words.join(" ");
            }
            4 => lines[at] = characters(&lines[at], random),
            5 => {
                // A word of another line in the place of one of this.
                let words: Vec<&str> = lines[other].split(' ').collect();
                let word = words[random.below(words.len())].to_owned();
                let mut own: Vec<String> = lines[at].split(' ').map(str::to_owned).collect();
                let place = random.below(own.len());
                own[place] = word;
                lines[at] = own.join(" ");
            }
            _ => {
                // Another number, in the place of a whole one or of a digit.
                const NUMBERS: [&str; 12] = [
                    "0",
                    "1",
                    "7",
                    "99",
                    "4294967295",
                    "-1",
                    "1024",
                    "65536",
                    "-2147483648",
                    "9223372036854775807",
                    "18446744073709551615",
                    "0x80000000",
                ];
                let starts: Vec<usize> = lines[at].char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at).collect();
                if !starts.is_empty() {
                    let start = starts[random.below(starts.len())];
                    let rest = lines[at][start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(lines[at].len() - start);
                    let end = start + if random.below(2) == 0 { rest } else { 1 };
                    lines[at].replace_range(start..end, NUMBERS[random.below(NUMBERS.len())]);
                }
            }
        }
    }
    let mut text = lines.join("\n");
    if random.below(16) == 0 {
        // Cut off somewhere.
        let end = (0..=random.below(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// A line with characters changed, dropped or doubled.
fn characters(line: &str, random: &mut Random) -> String {
    const OTHERS: &[u8] = b" .,;:%@!{}[]()<>+-*/|_09afxuLE\"\0";
    let mut bytes = line.as_bytes().to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(3) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 if at < bytes.len() => bytes[at] = OTHERS[random.below(OTHERS.len())],
            _ => bytes.insert(at.min(bytes.len()), OTHERS[random.below(OTHERS.len())]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn damaged_kernels_never_panic() {
    let root = env!("CARGO_MANIFEST_DIR");
    let files = [
        "../tessera-ptx/tests/ptx/instructions.ptx",
        "../../kernels/anchors/gemm_nn.ptx",
        "../../kernels/anchors/softmax.ptx",
        "tests/corpus/ptx/calls.sm_90a.ptx",
        "tests/corpus/ptx/matmul_wmma.sm_80.ptx",
        "tests/corpus/ptx/bulk.sm_90a.ptx",
        "tests/corpus/ptx/scan.sm_90a.ptx",
        "tests/corpus/ptx/triton_matmul_boxes.sm_90.ptx",
        "tests/corpus/ptx/print.debug.ptx",
        "tests/corpus/ptx/cluster.sm_90a.ptx",
        "tests/corpus/ptx/floats.fast.ptx",
        "tests/corpus/ptx/triton_attention.sm_80.ptx",
        "tests/generated/product_sm90a.ptx",
        "tests/generated/product_sm80.ptx",
        "tests/generated/rows_sm80.ptx",
    ];
    let sources: Vec<String> = files.iter().map(|path| std::fs::read_to_string(format!("{root}/{path}")).unwrap()).collect();
    // `cargo xtask nightly` takes more, and which depends on nothing else.
    let cases: u32 = if std::env::var_os("TESSERA_TEST_ALL").is_some() { 30_000 } else { 720 };
    let mut ran = 0;
    for case in 0..cases {
        let mut random = Random(u64::from(case));
        let text = damage(&sources[case as usize % sources.len()], &mut random);

        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let Ok(module) = emulator.load(&text) else { continue };
        let kernels: Vec<String> = module.kernels().map(str::to_owned).collect();
        for kernel in kernels {
            let data = emulator.alloc(4096).unwrap();
            let sanitize = if case % 2 == 0 { Sanitize::ALL } else { Sanitize::NONE };
            let schedule = [Schedule::Eager, Schedule::Lazy, Schedule::Random][case as usize % 3];
            let options = LaunchOptions {
                schedule,
                sanitize,
                shared_bytes: 229_440,
                patience: 1 << 10,
                most_instructions: 1 << 20,
                threads: Some(1),
                keep_going: case % 4 < 2,
                ..LaunchOptions::default()
            };
            let Ok(parameters) = module.parameters(&kernel) else { continue };
            let number = [0, 1, 40, 64, 1000, u32::MAX][random.below(6)];
            let args = parameters.iter().fold(Params::new(), |args, parameter| match parameter.bytes {
                8 => args.pointer(data),
                128 => args.aligned(&[0; 128], 64),
                _ => args.u32(number),
            });
            let threads = text.lines().find_map(|line| line.trim().strip_prefix(".reqntid ")?.split(',').next()?.parse().ok());
            let block = threads.unwrap_or(if kernel == "softmax" { 64 } else { 384 });
            let result = emulator.launch(&module, &kernel, Dim3::ONE, Dim3::from(block), &args, &options);
            ran += u32::from(!matches!(result, Err(EmuError::Launch(_))));
        }
    }
    assert!(ran > cases / 7, "{ran} kernels were executed");
}
