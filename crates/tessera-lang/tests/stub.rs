//! Walks the public names of `cuda-tile` 1.7.0: each has a language test that accepts it and one that refuses a wrong use, or
//! stands in the list of refused names with its reason.

use std::process::Command;

use tessera_lang::REFUSED;

use crate::support;

const WALK: &str = r#"
import inspect
import cuda.tile as ct
for name in sorted(ct.__all__):
    value = getattr(ct, name)
    kind = "function" if inspect.isfunction(value) or callable(value) and not isinstance(value, (type, ct.DType)) else "name"
    if isinstance(value, ct.DType):
        kind = "dtype"
    print(kind, name)
for owner in (ct.Array, ct.Tile, ct.TiledView, __import__("cuda.tile._stub", fromlist=["x"]).RawArrayMemory):
    for name, value in sorted(vars(owner).items()):
        if not name.startswith("_"):
            print("member", name)
for owner in (ct.PaddingMode, ct.RoundingMode, ct.MemoryOrder, ct.MemoryScope):
    for member in owner:
        print("enum", f"{owner.__name__}.{member.name}")
"#;

/// Names that take no arguments that could be wrong, or are read by the decorator and annotations, whose mistakes are
/// diagnosed where they are used.
const NO_WRONG_USE: &[&str] = &[
    "ByTarget",
    "Array",
    "ArrayAnnotation",
    "Constant",
    "ConstantAnnotation",
    "DType",
    "IndexedWithInt64",
    "ListAnnotation",
    "Scalar",
    "ScalarInt64",
    "Tile",
    "TiledView",
    "function",
    "kernel",
    "PaddingMode",
    "RoundingMode",
    "MemoryOrder",
    "MemoryScope",
    "grid_dependency_control_wait",
    "grid_dependency_control_launch_dependents",
    "print",
];

/// Members of classes that kernels can't use, with the reason.
const REFUSED_MEMBERS: &[(&str, &str)] = &[
    ("foreign_pointer", "pointers to foreign code have no meaning where a kernel may run on a CPU"),
    ("RoundingMode.RZI", "no operation of `cuda.tile` takes it"),
    ("MemoryScope.CLUSTER", "no operation of `cuda.tile` takes it"),
    ("from_foreign", "pointers to foreign code have no meaning where a kernel may run on a CPU"),
];

fn mentions(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(word) && !text[at + name.len()..].chars().next().is_some_and(word)
    })
}

#[test]
fn every_public_name_is_tested_or_refused_with_a_reason() {
    let Some(python) = std::env::var_os("TESSERA_PYTHON") else {
        println!("skipped: TESSERA_PYTHON names no interpreter with cuda-tile");
        return;
    };
    let output = Command::new(python).args(["-c", WALK]).output().expect("the interpreter runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let blocks = support::blocks("language");
    let accepting: Vec<String> = blocks.iter().filter(|block| !block.expects_error()).map(|block| block.source()).collect();
    let rejecting: Vec<&str> =
        blocks.iter().flat_map(|block| block.code.lines()).filter(|line| line.contains("# error: ")).collect();
    let (mut missing, mut counts) = (Vec::new(), (0, 0));
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let (kind, name) = line.split_once(' ').expect("kind and name");
        if REFUSED.iter().chain(REFUSED_MEMBERS).any(|(refused, _)| *refused == name) {
            counts.1 += 1;
            continue;
        }
        counts.0 += 1;
        let short = name.rsplit('.').next().unwrap_or(name);
        if !accepting.iter().any(|text| mentions(text, short)) {
            missing.push(format!("{name}: no accepting test"));
        }
        // Properties and enumeration members can't be called wrongly; dtypes are refused by the functions that take them.
        let property =
            ["dtype", "shape", "strides", "ndim", "tile_shape", "traversal_steps", "get_raw_memory", "item"].contains(&name);
        let can_be_wrong = kind == "function" || kind == "member" && !property;
        if can_be_wrong && !NO_WRONG_USE.contains(&name) && !rejecting.iter().any(|line| mentions(line, short)) {
            missing.push(format!("{name}: no rejecting test"));
        }
    }
    println!("{} names are tested, {} are refused with a reason", counts.0, counts.1);
    assert!(counts.0 > 100, "the walk found too few names");
    assert!(missing.is_empty(), "{} gaps:\n{}", missing.len(), missing.join("\n"));
}
