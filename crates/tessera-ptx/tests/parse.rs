//! Errors point at the right place, legality is checked, and no text makes the parser panic.

use arbtest::arbtest;
use tessera_ptx::{Target, check, parse, print};

const TEXT: &str = include_str!("ptx/instructions.ptx");

fn kernel(body: &str) -> String {
    format!(".version 8.0\n.target sm_90a\n.address_size 64\n.entry k(.param .u64 x)\n{{\n{body}\n}}\n")
}

#[test]
fn errors_have_a_line_a_column_and_a_reason() {
    let cases = [
        ("    add.u32 %r0, 1, 2;", 6, 13, "no register `%r0` is declared"),
        ("    .reg .b32 %r<2>;\n    add.u32 %r2, 1, 2;", 7, 13, "no register `%r2` is declared"),
        ("    .reg .f32 %f<2>;\n    add.u32 %f0, 1, 2;", 7, 13, "operand 1 of `add` is `.f32` where `.u32` is needed"),
        ("    .reg .b64 %d<2>;\n    add.u32 %d0, 1, 2;", 7, 13, "operand 1 of `add` is `.b64` where `.u32` is needed"),
        ("    frobnicate;", 6, 5, "`frobnicate` is no instruction of the table"),
        ("    tcgen05.wait::ld.sync.aligned;", 6, 5, "`tcgen05` needs sm_100a: instructions of later chips are not read"),
        ("    add.rn.f32x2 %d0, %d1, %d2;", 6, 11, "`.f32x2` of `add` needs sm_100: instructions of later chips are not read"),
        ("    bra.sometimes there;", 6, 8, "`.sometimes` is no modifier of `bra`"),
        ("    ret 1;", 6, 9, "operand 1 of `ret` is one too many"),
        ("    .reg .b32 %r<2>;\n    add.u32 %r0, 1;", 7, 19, "operand 3 of `add` is missing"),
        ("    .reg .bf16 %h;", 6, 16, "no register can be declared as `.bf16`: use `.b16`"),
        ("    .reg .b32 %r<2>;\n    @%r0 ret;", 7, 6, "`%r0` is no predicate"),
        ("    .reg .b32 %r<9>;\n    ld.global.v4.u32 {%r0, %r1}, [x];", 7, 22, "has 2 elements: 4 are needed"),
        ("    .reg .b32 %r<9>;\n    add.u32 %r0, 7 / (3 - 3), 1;", 7, 29, "a constant is divided by zero"),
        ("    .reg .b32 %r<9>;\n    vadd.u32.u32.u32 %r0, %r1.b4, %r2;", 7, 27, "operand 2 of `vadd` cannot have `.b4`"),
        ("    .reg .v2 .f32 %v;\n    neg.f32 %v, %v.z;", 7, 19, "expected an element such as `.x`, found `.z`"),
        ("    .reg .f32 %f<2>;\n    ld.global.f32 %f0, [%f1];", 7, 24, "counts from a `.f32`, which is no address"),
    ];
    for (body, line, column, message) in cases {
        let error = parse(&kernel(body)).unwrap_err();
        assert!(error.message.contains(message), "{body}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{body}: {error}");
    }
    let unknown = parse(&kernel("    .reg .f32 %f<2>;\n    add.ftz.sat.f64 %f0, %f1, %f1;")).unwrap_err();
    assert!(unknown.message.contains("is no form of `add`"), "{unknown}");
    let scalar = parse(".version 8.0\n.target sm_80\n.global .u32 x = {1, 2};").unwrap_err();
    assert_eq!(scalar.to_string(), "line 3, column 18: `x` is no array and takes one initial value");
    assert_eq!(parse("hello").unwrap_err().message, "expected `.version`, found `hello`");
    let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
    let kernel = ".visible .entry k()\n{\n    .reg .f32 %f;\n    ret;\n}\n";
    assert!(parse(&format!("{head}.func f();\n.func f()\n{{\n    ret;\n}}\n{kernel}")).is_ok());
    let refused = |text: String| parse(&text).map(|_| ()).map_err(|error| (error.line, error.message));
    for (text, line, message) in [
        (format!("{head}{kernel}{kernel}"), 9, "`k` is defined twice"),
        (format!("{head}{}", kernel.replace("%f;", "%f; .reg .f32 %f;")), 6, "`%f` is declared twice"),
        (format!("{head}{}", kernel.replace("%f;", "%f<4>, %f<2>;")), 6, "`%f` is declared twice"),
        (format!("{}{kernel}", head.replace("8.0", "99.0")), 1, "99 is no PTX version"),
        (format!("{}{kernel}", head.replace("size 64", "size 32")), 4, "an address size is 64"),
        (format!("{}{kernel}", head.replace("sm_90", "sm_20")), 2, "`sm_20` is no target"),
    ] {
        assert_eq!(refused(text), Err((line, message.to_string())));
    }
}

#[test]
fn legality_depends_on_target_and_version() {
    let text = kernel("    wgmma.fence.sync.aligned;\n    setmaxnreg.dec.sync.aligned.u32 40;");
    let mut module = parse(&text).unwrap();
    assert_eq!(check(&module), []);
    module.target = Target::parse("sm_100a").unwrap();
    let findings = check(&module);
    assert_eq!(findings.len(), 2);
    assert_eq!(findings[0].message, "`wgmma` needs sm_90a: the target is sm_100a");
    assert_eq!(findings[0].line, 6);
    let old = parse(&text.replace(".version 8.0", ".version 7.0")).unwrap();
    assert_eq!(check(&old)[0].message, "`wgmma` needs PTX 8.0: the module says 7.0");
}

#[test]
fn shapes_and_labels_are_checked() {
    let product = |shape: &str| {
        let product = format!("wgmma.mma_async.sync.aligned.{shape}.f32.bf16.bf16 {{%f0, %f1, %f2}}, %d0, %d1, %p, 1, 1, 0, 0;");
        parse(&kernel(&format!("    .reg .f32 %f<8>;\n    .reg .b64 %d<2>;\n    .reg .pred %p;\n    {product}")))
            .unwrap_err()
            .message
    };
    assert_eq!(product("m64n16k16"), "operand 1 of `wgmma` has 3 elements: 8 are needed");
    assert!(product("m64n12k16").contains("is no form of `wgmma`"));
    let messages: Vec<String> =
        check(&parse(&kernel("    bra nowhere;")).unwrap()).into_iter().map(|found| found.message).collect();
    assert_eq!(messages, ["no label `nowhere` exists"]);
}

#[test]
fn constants_are_worked_out() {
    let body = "    .reg .b32 %r;\n    .reg .f32 %f;\n    mov.u32 %r, (1 << 3 | 5) * 2 - 6 / 4;\n    mov.u32 %r, 5 % 3 == 2 && !0 ? ~7 : 9;\n    \
        mov.u32 %r, -1 < 1U;\n    mov.u32 %r, 0xFFFFFFFFFFFFFFFF >> 60;\n    mov.u32 %r, (.s64) 0xFFFFFFFFFFFFFFFF >> 60;\n    \
        mov.u32 %r, WARP_SZ * 2;\n    mov.f32 %f, 1.5 + 2;\n    mov.f32 %f, -0f7FC00001;\n    ld.global.u32 %r, g[3];\n    \
        mov.u32 %r, g + 4 * 2;";
    let text = kernel(body).replace(".entry", ".global .v2 .u32 g[4];\n.entry");
    let module = parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)));
    let printed = print(&module);
    let wanted = ["25", "-8", "0", "15", "-1", "64", "0d400C000000000000", "0fFFC00001", "[g+24]", "g+8"];
    for (line, wanted) in printed.lines().filter(|line| line.contains("mov") || line.contains("ld.")).zip(wanted) {
        assert!(line.ends_with(&format!(", {wanted};")), "{line}: {wanted}");
    }
    assert_eq!(parse(&printed).unwrap(), module);
}

#[test]
fn vectors_lists_and_properties() {
    let text = ".version 8.7\n.target sm_90a, texmode_independent\n.address_size 64\n.pragma \"nounroll\";\n\
        .global .u32 a = 1, b[2][3] = {{1, 2}, {3}};\n.global .u8 pointer[] = {0xFF(a), 0xFF00(generic(a))};\n\
        .global .v4 .f32 v[2] = {{1.0, 2.0}, {3.0}};\n.global .samplerref s = { addr_mode_0 = clamp_to_border, filter_mode = linear };\n\
        .global .texref t;\n.visible .func one() { ret; }\n.visible .func two();\n.alias two, one;\n\
        .visible .entry k .maxntid 32 .pragma \"nounroll\"; {\n    .reg .v4 .f32 %v<3>, w;\n    .reg .v4 .u32 i;\n    .reg .b64 %d;\n    \
        mov.v4.u32 i, %tid;\n    add.f32 w.x, %v1.y, w.a;\n    ld.global.v4.f32 %v2, [%d];\n    \
        tex.2d.v4.f32.f32 {w.x, w.y, _, _}, [t, s, {w.x, w.y}];\n    tex.1d.v4.f32.s32 w, [%d, i.x];\n    ret;\n}\n";
    let module = parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
    let printed = print(&module);
    for line in [
        "b[2][3] = {1, 2, 0, 3, 0, 0};",
        "pointer[] = {0xff(a), 0xff00(a)};",
        ".v4 .f32 v[2] = {0d3FF0000000000000, 0d4000000000000000, 0, 0, 0d4008000000000000, 0, 0, 0};",
        "s = {addr_mode_0 = clamp_to_border, filter_mode = linear};",
        "mov.v4.u32 {i.x, i.y, i.z, i.w}, {%tid.x, %tid.y, %tid.z, 0};",
        "add.f32 w.x, %v1.y, w.w;",
        "ld.global.v4.f32 {%v2.x, %v2.y, %v2.z, %v2.w}, [%d];",
        "tex.1d.v4.f32.s32 {w.x, w.y, w.z, w.w}, [%d, {i.x}];",
    ] {
        assert!(printed.contains(line), "{line}:\n{printed}");
    }
    assert_eq!(parse(&printed).unwrap_or_else(|error| panic!("{}", error.render(&printed))), module);
    assert_eq!(check(&module), []);
}

#[test]
fn registers_shadow_and_prefixes_may_end_in_digits() {
    let body = "    .reg .b32 %v<2>, %v1_<3>, %w2<4>;\n    mov.b32 %v1, %w23;\n    \
        {\n        .reg .f32 %v1;\n        mov.f32 %v1, 0f00000000;\n    }\n    mov.b32 %v0, %v1;";
    let module = parse(&kernel(body)).unwrap();
    let function = module.functions().next().unwrap();
    let names: Vec<String> = function.registers.iter().map(|found| format!("{}:{}", found.name, found.ty)).collect();
    assert_eq!(names, ["%v1:b32", "%w23:b32", "%v1:f32", "%v0:b32"]);
    assert_eq!(parse(&print(&module)).unwrap(), module);
}

#[test]
fn deep_nesting_is_refused() {
    let body = "{".repeat(100_000);
    assert!(parse(&kernel(&body)).unwrap_err().message.contains("nested"));
}

/// Cuts, doubles and overwrites pieces of valid texts, the compilers' among them; whatever still parses must also print back.
#[test]
fn damaged_text_never_panics() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../tessera-emu/tests/corpus/ptx");
    let mut texts = vec![TEXT.to_owned()];
    for name in ["calls.sm_90a", "histogram.sm_80", "stencil.sm_80", "triton_scans.sm_80", "print.debug"] {
        texts.push(std::fs::read_to_string(format!("{corpus}/{name}.ptx")).unwrap());
    }
    arbtest(|u| {
        let mut text = u.choose(&texts)?.as_bytes().to_vec();
        for _ in 0..u.int_in_range(1..=6)? {
            let from = u.choose_index(text.len())?;
            let to = (from + u.int_in_range(0..=40)?).min(text.len());
            match u.int_in_range(0..=3)? {
                0 => drop(text.drain(from..to)),
                1 => {
                    let piece = text[from..to].to_vec();
                    let at = u.choose_index(text.len())?;
                    text.splice(at..at, piece);
                }
                2 => text[from] = *u.choose(b"{}[]();:.,%@!|-+<>=_0123456789abcxyz\"\n\0")?,
                _ => text[from] = u.arbitrary()?,
            }
            if text.is_empty() {
                break;
            }
        }
        if let Ok(module) = parse(&String::from_utf8_lossy(&text)) {
            let printed = print(&module);
            let again = parse(&printed).unwrap_or_else(|error| panic!("{}", error.render(&printed)));
            assert_eq!(again, module);
            check(&module);
        }
        Ok(())
    })
    .budget_ms(1500);
}

#[test]
fn variables_of_a_function_may_be_named_like_registers() {
    let module =
        parse(&kernel("    .global .u64 %x;\n    .global .u64 x;\n    .reg .u64 %rd;\n    ld.global.u64 %rd, [x];\n    ret;"))
            .unwrap();
    assert_eq!(parse(&print(&module)).unwrap(), module);
}

#[test]
fn any_bytes_are_an_error_or_a_module() {
    arbtest(|u| {
        let length = u.arbitrary_len::<u8>()?;
        let bytes = u.bytes(length)?.to_vec();
        let text = String::from_utf8_lossy(&bytes);
        let _ = parse(&text);
        let _ = parse(&kernel(&text));
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn debug_places_and_sections_are_kept() {
    let text = kernel("    .loc 1 4 2\n    .loc 2 51 1, function_name names, inlined_at 1 4 2\n    ret;")
        + ".section .debug_str\n{\nnames:\n.b8 97\n.b8 0\n}\n";
    let module = parse(&text).unwrap();
    let printed = print(&module);
    assert!(printed.contains(".loc 2 51 1, function_name names+0, inlined_at 1 4 2\n"), "{printed}");
    assert!(printed.contains(".section .debug_str {\nnames:\n.b8 97\n.b8 0\n}\n"), "{printed}");
    assert_eq!(parse(&printed).unwrap(), module);
    assert_eq!(parse(&text[..text.len() - 3]).unwrap_err().message, "a section is not closed");
}
