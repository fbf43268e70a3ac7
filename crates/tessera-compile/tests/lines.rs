//! Machine code knows the lines of the kernel that it came from: through every level of the compiler, the assembler and back.

use tessera_compile::ptx::sass::{Kind, Listing, Memory};
use tessera_compile::ptx::{Disassembler, Target, ToolSource};
use tessera_compile::{OptLevel, compile_for};
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType};

use crate::devices::assembler;
use crate::library::compiled;

const PRODUCT: &str = "import cuda.tile as ct

@ct.kernel
def product(x, y, out):
    i, j = ct.bid(0), ct.bid(1)
    sum = ct.zeros((128, 128), ct.float32)
    for k in range(ct.cdiv(x.shape[1], 64)):
        a = ct.load(x, (i, k), (128, 64))
        b = ct.load(y, (k, j), (64, 128))
        sum = ct.mma(a, b, sum)
    ct.store(out, (i, j), sum)
";
const FOR: u32 = 7;
const LOAD_A: u32 = 8;
const LOAD_B: u32 = 9;
const MMA: u32 = 10;
const STORE: u32 = 11;

fn disassembler() -> Option<Disassembler> {
    let path = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let source = ToolSource { nvdisasm: path("TESSERA_NVDISASM"), python: path("TESSERA_PYTHON"), ..ToolSource::default() };
    let found = Disassembler::find(&source).ok();
    if found.is_none() {
        println!("skipped: no disassembler (TESSERA_NVDISASM, TESSERA_PYTHON)");
    }
    found
}

fn ptx(arch: Arch) -> String {
    let args = [("x", DType::BF16), ("y", DType::BF16), ("out", DType::F32)];
    let args = args.map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2))).to_vec();
    let compiled = compiled(&parse_file("product.py", PRODUCT), "product", &args);
    let device = compile_for(&compiled, arch, OptLevel::default()).unwrap_or_else(|found| panic!("{}", found[0].message));
    device.kernel.ptx()
}

/// What is wrong with the lines of a product's machine code.
fn fault(listing: &Listing, arch: Arch) -> Option<String> {
    let line = |at: usize| listing.instructions[at].line.as_ref().map(|line| line.number);
    if let Some(bare) = (0..listing.instructions.len()).find(|&at| line(at).is_none()) {
        return Some(format!("`{}` has no line", listing.instructions[bare].text));
    }
    let is_copy = |kind: Kind| matches!(kind, Kind::Memory(Memory::Engine | Memory::AsyncCopy, _));
    let stands = |name: &str, wanted: &[u32], is: &dyn Fn(Kind) -> bool| {
        let found: Vec<usize> = (0..listing.instructions.len()).filter(|&at| is(listing.instructions[at].kind)).collect();
        let mut lines: Vec<u32> = found.iter().filter_map(|&at| line(at)).collect();
        lines.sort_unstable();
        lines.dedup();
        (lines != wanted).then(|| format!("{name} of lines {lines:?} and not {wanted:?}"))
    };
    // On Hopper the engine stores too.
    let copies: &[u32] = if arch == Arch::Sm90a { &[LOAD_A, LOAD_B, STORE] } else { &[LOAD_A, LOAD_B] };
    let products = stands("products", &[MMA], &|kind| kind == Kind::Tensor);
    let copies = products.or_else(|| stands("copies", copies, &is_copy));
    let in_loops = |at: &usize| listing.loops.iter().any(|one| one.members.contains(at));
    copies.or_else(|| {
        let looped =
            (0..listing.instructions.len()).filter(in_loops).filter(|&at| listing.instructions[at].kind == Kind::Tensor).count();
        let of_loop = listing.loops.iter().flat_map(|one| &one.members).any(|&at| line(at) == Some(FOR));
        (looped == 0 || !of_loop).then(|| format!("{looped} products in loops; something of line {FOR} in one: {of_loop}"))
    })
}

/// The kernel's text without the `.loc` that hold for some lines.
fn without(ptx: &str, lost: impl Fn(&str) -> bool) -> String {
    let kept = ptx.lines().filter(|line| !line.trim().strip_prefix(".loc 1 ").is_some_and(&lost));
    kept.map(|line| format!("{line}\n")).collect()
}

#[test]
fn instructions_have_the_lines_that_they_came_from() {
    let (Some(assembler), Some(disassembler)) = (assembler(), disassembler()) else { return };
    for arch in [Arch::Sm80, Arch::Sm90a] {
        let target = Target::parse(arch.name()).expect("a target");
        let listing = |ptx: &str| {
            let assembly = assembler.assemble_with_lines(ptx, target).unwrap_or_else(|error| panic!("{error}"));
            disassembler.disassemble(&assembly.cubin, "product").unwrap_or_else(|error| panic!("{error}"))
        };
        let whole = ptx(arch);
        let shown = listing(&whole);
        assert_eq!(fault(&shown, arch), None, "{arch}");
        // Kernels that lose all lines, those of the product, or those of a load.
        let lost = |lost: &dyn Fn(&str) -> bool| {
            let listing = listing(&without(&whole, lost));
            let code = |listing: &Listing| listing.instructions.iter().map(|one| one.text.clone()).collect::<Vec<_>>();
            assert_eq!(code(&shown), code(&listing), "lines change no code");
            fault(&listing, arch).unwrap_or_else(|| panic!("{arch}: nothing is found"))
        };
        assert!(lost(&|_| true).ends_with("has no line"));
        assert!(lost(&|place| place.starts_with(&format!("{MMA} "))).starts_with("products of lines"));
        assert!(lost(&|place| place.starts_with(&format!("{LOAD_B} "))).starts_with("copies of lines"));
    }
}
