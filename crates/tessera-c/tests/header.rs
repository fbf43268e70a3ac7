//! The header says what the library has: functions with their types, numbers, layouts.

use std::collections::BTreeMap;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use tessera_c::{Kind, Status, TesseraArgument, TesseraItems, TesseraTensor};

use crate::packed::{compiler, root, run};

const HEADER: &str = include_str!("../include/tessera.h");
const SOURCES: [&str; 4] = [
    include_str!("../src/status.rs"),
    include_str!("../src/bundle.rs"),
    include_str!("../src/device.rs"),
    include_str!("../src/launch.rs"),
];

/// `const char *` of `*const c_char`.
fn c_type(rust: &str) -> String {
    let pointer = |inner: &str| {
        let inner = c_type(inner);
        if inner.ends_with('*') { format!("{inner}*") } else { format!("{inner} *") }
    };
    match (rust.strip_prefix("*const "), rust.strip_prefix("*mut ")) {
        (Some(inner), _) => format!("const {}", pointer(inner)),
        (_, Some(inner)) => pointer(inner),
        _ => match rust {
            "c_char" => "char",
            "c_void" | "" => "void",
            "u8" => "uint8_t",
            "u32" => "uint32_t",
            "usize" => "size_t",
            "Status" => "tessera_status",
            "TesseraBundle" => "tessera_bundle",
            "TesseraDevice" => "tessera_device",
            "TesseraArgument" => "tessera_argument",
            "TesseraPrepared" => "tessera_prepared",
            other => panic!("`{other}` has no name in C"),
        }
        .to_string(),
    }
}

/// One space between words, none behind brackets.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(", )", ")").replace(",)", ")")
}

/// Prototypes by name, from the library's sources.
fn exported() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in SOURCES {
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, rest) = part.split_once("extern \"C\" fn ").expect("a function");
            let signature = plain(rest.split_once('{').expect("a body").0);
            let (name, rest) = signature.split_once('(').expect("parameters");
            let (parameters, result) = rest.rsplit_once(')').expect("parameters");
            let parameter = |text: &str| {
                let (name, rust) = text.split_once(": ").expect("a type");
                let c = c_type(rust);
                if c.ends_with('*') { format!("{c}{name}") } else { format!("{c} {name}") }
            };
            let own: Vec<String> = parameters.split(", ").filter(|text| !text.is_empty()).map(parameter).collect();
            let own = if own.is_empty() { "void".to_string() } else { own.join(", ") };
            let result = c_type(result.trim().trim_start_matches("-> ").trim());
            let gap = if result.ends_with('*') { "" } else { " " };
            found.insert(name.to_string(), format!("{result}{gap}{name}({own})"));
        }
    }
    found
}

/// Prototypes by name, from the header.
fn declared() -> BTreeMap<String, String> {
    let mut text = String::new();
    for part in HEADER.split("/*") {
        text.push_str(part.split_once("*/").map_or(part, |(_, rest)| rest));
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let statements = lines.join("\n");
    let prototypes = statements.split([';', '{', '}']).map(plain).filter(|text| text.contains("(") && text.ends_with(')'));
    prototypes
        .map(|text| {
            let name = text.split('(').next().and_then(|head| head.split([' ', '*']).next_back()).expect("a name").to_string();
            (name, text)
        })
        .collect()
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let (exported, declared) = (exported(), declared());
    assert_eq!(declared, exported);
    assert!((10..20).contains(&exported.len()), "{} functions", exported.len());
}

#[test]
fn numbers_and_layouts_are_the_same_in_c() {
    let Some(compiler) = compiler() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut wanted: Vec<(String, usize)> = Vec::new();
    macro_rules! layout {
        ($c:literal, $rust:ty, [$($field:ident),*]) => {
            wanted.push((format!("sizeof({})", $c), size_of::<$rust>()));
            $(wanted.push((format!("offsetof({}, {})", $c, stringify!($field)), offset_of!($rust, $field)));)*
        };
    }
    layout!(
        "tessera_tensor",
        TesseraTensor,
        [data, device_type, device_id, ndim, code, bits, lanes, shape, strides, byte_offset]
    );
    layout!("tessera_items", TesseraItems, [values, count]);
    layout!("tessera_argument", TesseraArgument, [name, kind, value]);
    assert_eq!((size_of::<TesseraTensor>(), align_of::<TesseraTensor>()), (48, 8), "DLPack's");
    let status = |name: &str, status: Status| (name.to_string(), status as usize);
    wanted.extend([
        status("TESSERA_OK", Status::Ok),
        status("TESSERA_INVALID_CALL", Status::InvalidCall),
        status("TESSERA_NO_FILE", Status::NoFile),
        status("TESSERA_BAD_BUNDLE", Status::BadBundle),
        status("TESSERA_OTHER_VERSION", Status::OtherVersion),
        status("TESSERA_NO_KERNEL", Status::NoKernel),
        status("TESSERA_WRONG_TARGET", Status::WrongTarget),
        status("TESSERA_WRONG_ARGUMENTS", Status::WrongArguments),
        status("TESSERA_NO_VARIANT", Status::NoVariant),
        status("TESSERA_NO_DEVICE", Status::NoDevice),
        status("TESSERA_OUT_OF_MEMORY", Status::OutOfMemory),
        status("TESSERA_DEVICE_FAILED", Status::DeviceFailed),
        status("TESSERA_INTERNAL", Status::Internal),
    ]);
    let kind = |name: &str, kind: Kind| (name.to_string(), kind as usize);
    wanted.extend([
        kind("TESSERA_TENSOR", Kind::Tensor),
        kind("TESSERA_INTEGER", Kind::Integer),
        kind("TESSERA_REAL", Kind::Real),
        kind("TESSERA_TEXT", Kind::Text),
        kind("TESSERA_LIST", Kind::List),
        kind("TESSERA_TUPLE", Kind::Tuple),
    ]);
    let numbers = HEADER.lines().filter(|line| line.trim_start().starts_with("TESSERA_") && line.contains(" = ")).count();
    assert_eq!(
        wanted.iter().filter(|(name, _)| name.starts_with("TESSERA_")).count(),
        numbers,
        "a number of the header is not compared"
    );
    let lines: String = wanted.iter().map(|(what, _)| format!("    printf(\"%d\\n\", (int)({what}));\n")).collect();
    let source = folder.path().join("numbers.c");
    std::fs::write(&source, format!("#include <stdio.h>\n#include \"tessera.h\"\nint main(void) {{\n{lines}    return 0;\n}}\n"))
        .expect("written");
    let program = folder.path().join("numbers");
    let include = root().join("crates/tessera-c/include");
    let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
    run(Command::new(&compiler).args(strict).arg("-std=c99").arg("-I").arg(&include).arg("-o").arg(&program).arg(&source));
    let told: Vec<usize> = run(&mut Command::new(&program)).lines().map(|line| line.parse().expect("a number")).collect();
    let names: Vec<&String> = wanted.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names.iter().zip(told).collect::<Vec<_>>(),
        names.iter().zip(wanted.iter().map(|(_, number)| *number)).collect::<Vec<_>>()
    );
}
