//! Kernels built in SSA form, printed: loops, branches, vectors, accumulators. Each is checked, read back and, where an
//! assembler is found, assembled for every target that has its instructions.

mod ssa;

use ssa::kernels;
use tessera_ptx::ssa::module;
use tessera_ptx::{Assembler, AssemblerSource, Optimize, Target, check, parse, print};

fn targets(name: &str) -> &'static [&'static str] {
    match name {
        "wgmma_loop" | "wgmma_registers" => &["sm_90a"],
        "tensor_ring" => &["sm_90a", "sm_100a"],
        _ => &["sm_80", "sm_90a", "sm_100a"],
    }
}

#[test]
fn kernels_are_legal_print_back_and_assemble() {
    let source = AssemblerSource {
        ptxas: std::env::var_os("TESSERA_PTXAS").map(Into::into),
        python: std::env::var_os("TESSERA_PYTHON").map(Into::into),
        ..AssemblerSource::default()
    };
    let assembler = Assembler::find(&source).map_err(|error| println!("not assembled: {error}")).ok();
    for kernel in kernels() {
        for target in targets(&kernel.name).iter().filter_map(|name| Target::parse(name)) {
            let (module, reports) = module(std::slice::from_ref(&kernel), target, &["kernel.py".to_owned()]);
            let text = print(&module);
            assert_eq!(check(&module), [], "{text}");
            assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{}\n{text}", error.render(&text))), module, "{text}");
            assert_eq!(reports[0].accumulator_moves_in_loops, 0, "{text}");
            if let Some(assembler) = &assembler {
                let assembly =
                    assembler.assemble(&text, target, Optimize::Full).unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert!(!assembly.report.serialises_wgmma(), "{:?}\n{text}", assembly.report.messages);
            }
        }
    }
}

#[test]
fn show() {
    for kernel in kernels() {
        if kernel.name == "families" {
            continue;
        }
        let target = Target::SM_90A;
        println!("{}", print(&module(std::slice::from_ref(&kernel), target, &[]).0));
    }
}
