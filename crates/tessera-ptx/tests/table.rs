//! The instruction table against a text that uses its rows, and against the assembler.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tessera_ptx::{AssembleError, Assembler, AssemblerSource, Optimize, RowId, Statement, Target, check, parse, print, rows};

const TEXT: &str = include_str!("ptx/instructions.ptx");

/// Rows that `instructions.ptx` leaves out, and why.
const LEFT_OUT: &[&str] = &["call.uni? `l L?`: a call without results"];

fn used(statements: &[Statement], out: &mut BTreeSet<RowId>) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => drop(out.insert(instruction.row)),
            Statement::Block(inner) => used(inner, out),
            _ => {}
        }
    }
}

#[test]
fn the_corpus_uses_every_row_and_prints_back() {
    let module = parse(TEXT).unwrap_or_else(|error| panic!("{}", error.render(TEXT)));
    assert_eq!(check(&module), []);
    let printed = print(&module);
    let again = parse(&printed).unwrap_or_else(|error| panic!("{}", error.render(&printed)));
    assert_eq!(again, module);
    assert_eq!(print(&again), printed);

    let mut seen = BTreeSet::new();
    for function in module.functions() {
        used(function.body.as_deref().unwrap(), &mut seen);
    }
    let missing: Vec<String> = (0..rows().len() as u16)
        .map(RowId)
        .filter(|row| !seen.contains(row))
        .map(|row| format!("{} `{}`", row.row().form, row.row().operands))
        .filter(|row| !LEFT_OUT.iter().any(|left| left.starts_with(row)))
        .collect();
    assert!(missing.is_empty(), "rows without an example: {missing:#?}");
}

fn assembler() -> Option<Assembler> {
    let source = AssemblerSource {
        ptxas: std::env::var_os("TESSERA_PTXAS").map(PathBuf::from),
        python: std::env::var_os("TESSERA_PYTHON").map(PathBuf::from),
        ..AssemblerSource::default()
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
fn the_assembler_takes_what_the_table_takes() {
    let Some(assembler) = assembler() else { return };
    let printed = print(&parse(TEXT).unwrap());
    match assembler.assemble(&printed, Target::SM_90A, Optimize::Quick) {
        Ok(assembly) => assert!(assembly.cubin.starts_with(b"\x7fELF")),
        Err(AssembleError::Refused { report }) => panic!("{:#?}", report.messages),
        Err(error) => panic!("{error}"),
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
