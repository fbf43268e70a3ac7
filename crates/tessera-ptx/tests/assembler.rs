//! What the assembler says is read.

use std::path::PathBuf;

use tessera_ptx::{AssembleError, Assembler, Optimize, Target, ToolSource};

fn assembler() -> Option<Assembler> {
    let source = ToolSource {
        ptxas: std::env::var_os("TESSERA_PTXAS").map(PathBuf::from),
        python: std::env::var_os("TESSERA_PYTHON").map(PathBuf::from),
        ..ToolSource::default()
    };
    match Assembler::find(&source) {
        Ok(found) => Some(found),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn a_refusal_names_the_line() {
    let Some(assembler) = assembler() else { return };
    let text = ".version 8.0\n.target sm_90a\n.address_size 64\n.entry k()\n{\n  mov.u32 %r0, 1;\n  ret;\n}\n";
    match assembler.assemble(text, Target::SM_90A, Optimize::Quick) {
        Err(AssembleError::Refused { report }) => assert_eq!(report.messages[0].line, Some(6)),
        other => panic!("{other:?}"),
    }
}
