//! Broken kernels end in an error or a finding, never in a panic: lines of real kernels dropped, doubled, swapped, and operands
//! exchanged.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Sanitize, Schedule};

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
        match random.below(5) {
            0 => {
                lines.remove(at);
            }
            1 => lines.insert(at, lines[other].clone()),
            2 => lines.swap(at, other),
            3 => {
                // Another register of the same line.
                let words: Vec<String> = lines[at].split(' ').map(str::to_owned).collect();
                if words.len() > 2 {
                    let (a, b) = (random.below(words.len()), random.below(words.len()));
                    let mut words = words;
                    words.swap(a, b);
                    lines[at] = words.join(" ");
                }
            }
            _ => {
                // Another number.
                let digit = lines[at].find(|c: char| c.is_ascii_digit());
                if let Some(digit) = digit {
                    let new = ["0", "7", "99", "4294967295", "-1"][random.below(5)];
                    lines[at].replace_range(digit..=digit, new);
                }
            }
        }
    }
    lines.join("\n")
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
    ];
    let sources: Vec<String> = files.iter().map(|path| std::fs::read_to_string(format!("{root}/{path}")).unwrap()).collect();
    let mut random = Random(1);
    let mut ran = 0;
    for case in 0..720 {
        let text = damage(&sources[case % sources.len()], &mut random);
        let emulator = Emulator::new(&EmuOptions::default()).unwrap();
        let Ok(module) = emulator.load(&text) else { continue };
        let kernels: Vec<String> = module.kernels().map(str::to_owned).collect();
        for kernel in kernels {
            let data = emulator.alloc(4096).unwrap();
            let sanitize = if case % 2 == 0 { Sanitize::ALL } else { Sanitize::NONE };
            let schedule = [Schedule::Eager, Schedule::Lazy, Schedule::Random][case % 3];
            let options = LaunchOptions {
                schedule,
                sanitize,
                shared_bytes: 229_440,
                patience: 1 << 10,
                threads: Some(1),
                ..LaunchOptions::default()
            };
            // As many arguments as the kernel takes, whatever they mean.
            for count in 0..8 {
                let mut args = Params::new();
                for _ in 0..count {
                    args = args.pointer(data);
                }
                let block = if kernel == "softmax" { 64 } else { 384 };
                let result = emulator.launch(&module, &kernel, Dim3::ONE, Dim3::from(block), &args, &options);
                let wrong_count = result.as_ref().is_err_and(|error| error.to_string().contains("arguments for"));
                if !wrong_count {
                    ran += 1;
                    break;
                }
            }
        }
    }
    assert!(ran > 100, "{ran} kernels were executed");
}
