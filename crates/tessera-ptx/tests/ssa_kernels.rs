//! Kernels built in SSA form, printed: loops, branches, vectors, accumulators. Each is checked, read back and, where an
//! assembler is found, assembled for every target that has its instructions.

use expect_test::expect_file;
use tessera_ptx::ssa::{Kernel, Level, module, optimize};
use tessera_ptx::{Assembler, Optimize, Target, ToolSource, check, parse, print};

use crate::ssa::kernels;

fn targets(name: &str) -> &'static [&'static str] {
    match name {
        "wgmma_loop" | "wgmma_registers" => &["sm_90a"],
        "tensor_ring" => &["sm_90a", "sm_100a"],
        _ => &["sm_80", "sm_90a", "sm_100a"],
    }
}

#[test]
fn kernels_are_legal_print_back_and_assemble() {
    let source = ToolSource {
        ptxas: std::env::var_os("TESSERA_PTXAS").map(Into::into),
        python: std::env::var_os("TESSERA_PYTHON").map(Into::into),
        ..ToolSource::default()
    };
    let assembler = Assembler::find(&source).map_err(|error| println!("not assembled: {error}")).ok();
    let optimised = |mut kernel: Kernel| {
        optimize(&mut kernel, Level::O2);
        kernel
    };
    for kernel in kernels().into_iter().chain(kernels().into_iter().map(optimised)) {
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

/// How the optimised kernels look. `UPDATE_EXPECT=1` writes them anew.
#[test]
fn optimised_kernels_look_as_committed() {
    for mut kernel in kernels().into_iter().filter(|kernel| kernel.name != "families") {
        optimize(&mut kernel, Level::O2);
        let (module, reports) = module(std::slice::from_ref(&kernel), Target::SM_90A, &["kernel.py".to_owned()]);
        let moves = if kernel.name == "swap" { 3 } else { 0 };
        assert!(reports[0].moves_in_loops <= moves, "{}: {:?}", kernel.name, reports[0]);
        expect_file![format!("ssa/{}.ptx", kernel.name)].assert_eq(&print(&module));
    }
}
