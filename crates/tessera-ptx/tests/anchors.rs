//! The anchor kernels: their committed text parses, is legal, prints back, and assembles for sm_90a without spills,
//! without a stack and without serialised wgmma.

use std::path::PathBuf;

use tessera_ptx::{Assembler, Optimize, Target, ToolSource, check, parse, print};

fn anchors() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../kernels/anchors");
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "ptx"))
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    found.sort();
    found
}

#[test]
fn the_anchors_are_there_and_print_back() {
    let anchors = anchors();
    let names: Vec<&str> = anchors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["attention", "attention_free", "gemm_nn", "gemm_nt", "softmax"]);
    for (name, text) in &anchors {
        let module = parse(text).unwrap_or_else(|error| panic!("{name}: {}", error.render(text)));
        assert_eq!(check(&module), [], "{name}");
        assert_eq!(module.target, Target::SM_90A);
        assert_eq!(parse(&print(&module)).unwrap(), module, "{name}");
        assert_eq!(module.functions().next().unwrap().name.0.as_ref(), name);
    }
}

#[test]
fn the_anchors_assemble_without_spills_or_serialised_wgmma() {
    let source = ToolSource {
        ptxas: std::env::var_os("TESSERA_PTXAS").map(PathBuf::from),
        python: std::env::var_os("TESSERA_PYTHON").map(PathBuf::from),
        ..ToolSource::default()
    };
    let assembler = match Assembler::find(&source) {
        Ok(found) => found,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    for (name, text) in anchors() {
        // What is assembled is what the printer makes of the text, so the printer is tested too.
        let printed = print(&parse(&text).unwrap());
        let assembly = assembler.assemble(&printed, Target::SM_90A, Optimize::Full).unwrap();
        let report = &assembly.report;
        let usage = &report.functions[0];
        assert_eq!((report.spilled_bytes(), usage.stack_bytes), (0, 0), "{name}: {usage:?}");
        assert!(!report.serialises_wgmma() && !report.ignores_setmaxnreg(), "{name}: {:?}", report.messages);
        assert_eq!(usage.name, name);
        println!("{name}: {} registers, ptxas {} in {:?}", usage.registers, assembler.version(), assembly.time);
    }
}
