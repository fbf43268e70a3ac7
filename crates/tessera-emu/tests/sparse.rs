//! Sparse products of a warp against those of the dense matrices that they stand for; metadata that means nothing is refused.

use tessera_driver::{Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, FindingKind, LaunchOptions};

/// A shape, its types, and the choices of threads that give its metadata.
struct Case {
    name: &'static str,
    k: usize,
    selectors: u32,
}

const fn case(name: &'static str, k: usize, selectors: u32) -> Case {
    Case { name, k, selectors }
}

const CASES: [Case; 8] = [
    case("f16", 16, 4),
    case("f16", 32, 2),
    case("bf16", 32, 2),
    case("tf32", 8, 4),
    case("tf32", 16, 2),
    case("s8", 32, 2),
    case("s8", 64, 1),
    case("e4m3", 64, 1),
];

impl Case {
    fn bits(&self) -> usize {
        match self.name {
            "tf32" => 32,
            "f16" | "bf16" => 16,
            _ => 8,
        }
    }

    fn is_float(&self) -> bool {
        self.name != "s8"
    }

    /// Words of A and B that a lane holds.
    fn registers(&self) -> [usize; 2] {
        [self.k * 16 / 2, self.k * 8].map(|elements| elements * self.bits() / 32 / 32)
    }

    /// Neighbours along K of which half are stored.
    fn group(&self) -> usize {
        if self.name == "tf32" { 2 } else { 4 }
    }

    fn code(&self, value: i32) -> u32 {
        let bits = (value as f32).to_bits();
        match self.name {
            "s8" => value as u32 & 0xff,
            "bf16" => bits >> 16,
            "tf32" => bits,
            _ if value == 0 => 0,
            "f16" => (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112 << 10)) & 0x7fff,
            _ => (bits >> 24 & 0x80) | ((bits >> 20 & 0x7ff) - (120 << 3)) & 0x7f,
        }
    }

    fn sum(&self, value: i32) -> u32 {
        if self.is_float() { (value as f32).to_bits() } else { value as u32 }
    }

    /// The word of each lane whose rows have these metadata, the lowest bits first.
    fn spread(&self, rows: &[u64; 16], selector: u32) -> Vec<u32> {
        let bits = if self.name == "tf32" { 2 * self.k } else { self.k };
        let mut lanes = vec![0xffff_ffff; 32];
        for g in 0..8 {
            let pair = [rows[g], rows[g + 8]];
            match self.bits() {
                // An even lane has 32 bits of row g, the next one those of row g + 8.
                8 => {
                    for piece in 0..bits / 32 {
                        for (half, row) in pair.iter().enumerate() {
                            lanes[4 * g + 2 * (selector as usize + piece) + half] = (row >> (32 * piece)) as u32;
                        }
                    }
                }
                // A lane has 16 bits of both.
                _ => {
                    for piece in 0..bits / 16 {
                        let part = |row: u64| (row >> (16 * piece)) as u32 & 0xffff;
                        lanes[4 * g + selector as usize * (bits / 16) + piece] = part(pair[0]) | part(pair[1]) << 16;
                    }
                }
            }
        }
        lanes
    }
}

/// Each lane loads its words of A, B, C and metadata, lane by lane, multiplies, and stores its sums in C's place.
fn kernel(case: &Case, sparse: &str, selector: u32, [a, b]: [usize; 2]) -> String {
    let list = |prefix: &str, count: usize| (0..count).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ");
    let loads: String = [("a", a), ("b", b), ("c", 4), ("e", 1)]
        .iter()
        .flat_map(|(prefix, count)| {
            (0..*count).map(move |i| format!("    ld.global.b32 %{prefix}{i}, [%p{prefix}+{}];\n", i * 4))
        })
        .collect();
    let starts: String = (0..4).map(|i| format!("    mov.b32 %d{i}, %c{i};\n")).collect();
    let stores: String = (0..4).map(|i| format!("    st.global.b32 [%pc+{}], %d{i};\n", i * 4)).collect();
    let places: String = [("a", a), ("b", b), ("c", 4), ("e", 1)]
        .iter()
        .map(|(prefix, count)| {
            let scaled = format!("    mul.wide.u32 %o, %t, {};\n", count * 4);
            format!("    ld.param.u64 %p{prefix}, [{prefix}];\n{scaled}    add.u64 %p{prefix}, %p{prefix}, %o;\n")
        })
        .collect();
    let (d, sum) = if case.is_float() { ("f32", "f32") } else { ("b32", "s32") };
    let types = format!("m16n8k{}.row.col.{sum}.{name}.{name}.{sum}", case.k, name = case.name);
    format!(
        ".version 8.5
.target sm_90a
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 e)
{{
    .reg .b32 %t, %a<4>, %b<4>, %c<4>, %e<1>;
    .reg .{d} %d<4>;
    .reg .b64 %pa, %pb, %pc, %pe, %o;
    mov.u32 %t, %tid.x;
{places}{loads}{starts}    mma.{sparse}.sync.aligned.{types} {{{}}}, {{{}}}, {{{}}}, {{{}}}, %e0, {selector};
{stores}    ret;
}}",
        list("d", 4),
        list("a", a),
        list("b", b),
        list("d", 4)
    )
}

/// What is stored of A, row by row, B column by column; row by row the sums, or why there are none.
fn multiplied(
    case: &Case,
    sparse: &str,
    selector: u32,
    stored: impl Fn(usize, usize) -> i32,
    b: impl Fn(usize, usize) -> i32,
    metadata: &[u64; 16],
) -> Result<Vec<u32>, EmuError> {
    let each = 32 / case.bits();
    let [a_regs, b_regs] = case.registers();
    let (mut left, mut right) = (vec![0u32; 32 * a_regs], vec![0u32; 32 * b_regs]);
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for element in 0..each {
            for reg in 0..a_regs {
                let value = stored(g + 8 * (reg % 2), reg / 2 * 4 * each + t * each + element);
                left[lane * a_regs + reg] |= case.code(value) << (element * case.bits());
            }
            for reg in 0..b_regs {
                right[lane * b_regs + reg] |= case.code(b(reg * 4 * each + t * each + element, g)) << (element * case.bits());
            }
        }
    }
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let put = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = emulator.alloc(bytes.len() as u64).unwrap();
        emulator.write(at, &bytes).unwrap();
        at
    };
    let sums = put(&[case.sum(1); 128]);
    let args = Params::new()
        .pointer(put(&left))
        .pointer(put(&right))
        .pointer(sums)
        .pointer(put(&case.spread(metadata, selector % case.selectors)));
    let module = emulator.load(&kernel(case, sparse, selector, [a_regs, b_regs]))?;
    emulator.launch(&module, "product", Dim3::ONE, Dim3::from(32), &args, &LaunchOptions::default())?;
    let mut bytes = vec![0; 128 * 4];
    emulator.read(sums, &mut bytes).unwrap();
    let of_lanes: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let at = |row: usize, column: usize| 4 * (4 * (row % 8) + column / 2) + 2 * (row / 8) + column % 2;
    Ok((0..128).map(|element| of_lanes[at(element / 8, element % 8)]).collect())
}

fn b_value(k: usize, column: usize) -> i32 {
    (k * 17 + column * 31) as i32 % 7 - 3
}

fn a_value(row: usize, at: usize) -> i32 {
    (row * 5 + at * 3) as i32 % 9 - 4
}

#[test]
fn products_are_those_of_the_expanded_matrix() {
    for case in &CASES {
        let per_row = case.k / 2;
        for (sparse, selector) in
            ["sp", "sp::ordered_metadata"].iter().flat_map(|sparse| (0..case.selectors).map(move |selector| (*sparse, selector)))
        {
            let mut metadata = [0u64; 16];
            let mut dense = vec![0; 16 * case.k];
            for (row, word) in metadata.iter_mut().enumerate() {
                for group in 0..case.k / case.group() {
                    let salt = row * 7 + group * 5;
                    let (first, stored): (usize, &[usize]) = match case.group() {
                        2 => (2 * group, &[[0], [1]][salt % 2]),
                        _ => (4 * group, &[[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][salt % 6]),
                    };
                    let field = match stored {
                        [place] => [0b0100, 0b1110][*place],
                        places => (places[0] | places[1] << 2) as u64,
                    };
                    *word |= field << (4 * group);
                    for (nth, place) in stored.iter().enumerate() {
                        dense[row * case.k + first + place] = a_value(row, group * stored.len() + nth);
                    }
                }
            }
            let found = multiplied(case, sparse, selector, a_value, b_value, &metadata).unwrap_or_else(|error| panic!("{error}"));
            for (at, &found) in found.iter().enumerate() {
                let (row, column) = (at / 8, at % 8);
                let sum = (0..case.k).fold(1, |sum, k| sum + dense[row * case.k + k] * b_value(k, column));
                assert_eq!(found, case.sum(sum), "{} of {} {sparse} {selector}: ({row}, {column})", case.name, 2 * per_row);
            }
        }
    }
}

/// The one row's metadata are written out by hand: places 1 and 3, then 0 and 1.
#[test]
fn metadata_count_from_the_lowest_bits() {
    let case = &case("f16", 16, 4);
    let mut metadata = [0b0100_0100_0100_0100; 16];
    metadata[9] = 0b0100_0100_0100_1101;
    let stored = |row: usize, at: usize| if row == 9 && at < 2 { [10, 100][at] } else { 0 };
    let found = multiplied(case, "sp::ordered_metadata", 2, stored, |k, _| k as i32, &metadata).unwrap();
    for (at, &sum) in found.iter().enumerate() {
        let wanted = if at / 8 == 9 { 1 + 10 + 3 * 100 } else { 1 };
        assert_eq!(sum, case.sum(wanted), "row {}", at / 8);
    }
}

#[test]
fn metadata_that_mean_nothing_are_found() {
    let f16 = &case("f16", 32, 2);
    let tf32 = &case("tf32", 16, 2);
    let run = |case: &Case, sparse: &str, usual: u64, row_11: u64| {
        let mut metadata = [usual; 16];
        metadata[11] = row_11;
        multiplied(case, sparse, 0, a_value, b_value, &metadata)
    };
    let finding = |result: Result<Vec<u32>, EmuError>| match result {
        Err(EmuError::Fault { finding, .. }) => {
            assert_eq!(finding.kind, FindingKind::Matrix, "{finding}");
            finding.to_string()
        }
        other => panic!("nothing is found: {other:?}"),
    };
    let ordered = "sp::ordered_metadata";
    for sparse in ["sp", ordered] {
        for twice in [0b0000, 0b0101, 0b1010, 0b1111] {
            let message = finding(run(f16, sparse, 0x4444_4444, 0x4444_4044 | twice << 8));
            assert!(message.contains("row 11: group 2 has"), "{message}");
        }
        let message = finding(run(tf32, sparse, 0x4444_4444, 0x4444_444d));
        assert!(message.contains("row 11: 0b1101 is the place of no `tf32`"), "{message}");
    }
    let message = finding(run(f16, ordered, 0x4444_4444, 0x4444_4414));
    assert!(message.contains("row 11: group 1 has the places 1 and 0"), "{message}");
    // Without the promise of an order it means what it says.
    run(f16, "sp", 0x4444_4444, 0x4444_4414).unwrap();
}

#[test]
fn a_choice_of_threads_that_there_are_not_is_refused() {
    for case in &CASES {
        let refused = multiplied(case, "sp::ordered_metadata", case.selectors, a_value, b_value, &[0; 16]);
        let message = refused.expect_err(case.name).to_string();
        assert!(message.contains(&format!("below {}", case.selectors)), "{message}");
    }
}

/// Columns of a warpgroup's product.
const COLUMNS: usize = 16;

/// Threads of a warpgroup put A, of which half is stored, and B into shared memory, K-major and not swizzled, multiply, and store their sums.
/// The register with the metadata is written again while the product is under way.
fn warpgroup_kernel(selector: u32) -> String {
    let list = (0..COLUMNS / 2).map(|i| format!("%d{i}")).collect::<Vec<_>>().join(", ");
    let zeros: String = (0..COLUMNS / 2).map(|i| format!("    mov.f32 %d{i}, 0f3f800000;\n")).collect();
    let stores: String = (0..COLUMNS / 2).map(|i| format!("    st.global.f32 [%pc+{}], %d{i};\n", i * 4)).collect();
    let copies: String =
        (0..6).map(|i| format!("    ld.global.b32 %v, [%pa+{}];\n    st.shared.b32 [%at+{}], %v;\n", i * 512, i * 512)).collect();
    // Bytes from 8 rows to the next, and from 16 bytes of a row to the next, in units of 16; A has 2048 bytes.
    let (a, b) = (0x10_0008_0000_u64, 0x20_0008_0000_u64 + (2048 >> 4));
    format!(
        ".version 8.5
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry product(.param .u64 a, .param .u64 c, .param .u64 e) .reqntid 128
{{
    .reg .pred %yes;
    .reg .b32 %t, %v, %at, %base, %e;
    .reg .f32 %d<{regs}>;
    .reg .b64 %pa, %pc, %pe, %o, %da, %db, %s;
    mov.u32 %t, %tid.x;
    mul.wide.u32 %o, %t, 4;
    ld.param.u64 %pa, [a];
    add.u64 %pa, %pa, %o;
    ld.param.u64 %pe, [e];
    add.u64 %pe, %pe, %o;
    ld.global.b32 %e, [%pe];
    mul.wide.u32 %o, %t, {bytes};
    ld.param.u64 %pc, [c];
    add.u64 %pc, %pc, %o;
    mov.u32 %base, dynamic;
    mad.lo.u32 %at, %t, 4, %base;
{copies}    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %base, %base, 4;
    cvt.u64.u32 %s, %base;
    add.u64 %da, %s, {a};
    add.u64 %db, %s, {b};
    setp.eq.u32 %yes, 0, 0;
{zeros}    wgmma.fence.sync.aligned;
    wgmma.mma_async.sp.sync.aligned.m64n{COLUMNS}k32.f32.f16.f16 {{{list}}}, %da, %db, %e, {selector}, %yes, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
{stores}    ret;
}}",
        regs = COLUMNS / 2,
        bytes = COLUMNS / 2 * 4,
    )
}

/// Row by row the sums of a warpgroup whose product has the one selector while threads give what the other argument says.
fn multiplied_by_warpgroup(selector: u32, given: u32, row_places: &dyn Fn(usize) -> u64) -> Result<Vec<u32>, EmuError> {
    let case = &case("f16", 32, 2);
    let mut memory = vec![0u8; 3072];
    let mut put = |at: usize, value: i32| memory[at..at + 2].copy_from_slice(&(case.code(value) as u16).to_le_bytes());
    for row in 0..64 {
        for at in 0..16 {
            put(row / 8 * 256 + at / 8 * 128 + row % 8 * 16 + at % 8 * 2, a_value(row, at));
        }
    }
    for column in 0..COLUMNS {
        for k in 0..32 {
            put(2048 + column / 8 * 512 + k / 8 * 128 + column % 8 * 16 + k % 8 * 2, b_value(k, column));
        }
    }
    let words: Vec<u32> =
        (0..4).flat_map(|warp| case.spread(&std::array::from_fn(|row| row_places(16 * warp + row)), given)).collect();
    let emulator = Emulator::new(&EmuOptions::default()).unwrap();
    let memory_of = |bytes: &[u8]| {
        let at = emulator.alloc(bytes.len() as u64).unwrap();
        emulator.write(at, bytes).unwrap();
        at
    };
    let sums = memory_of(&[0; 64 * COLUMNS * 4]);
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let args = Params::new().pointer(memory_of(&memory)).pointer(sums).pointer(memory_of(&words));
    let module = emulator.load(&warpgroup_kernel(selector))?;
    let options = LaunchOptions { shared_bytes: 4096, ..LaunchOptions::default() };
    let report = emulator.launch(&module, "product", Dim3::ONE, Dim3::from(128), &args, &options)?;
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let mut bytes = vec![0; 64 * COLUMNS * 4];
    emulator.read(sums, &mut bytes).unwrap();
    let at = |row: usize, column: usize| {
        let thread = row / 16 * 32 + 4 * (row % 8) + column % 8 / 2;
        let register = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
        4 * (thread * (COLUMNS / 2) + register)
    };
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok((0..64 * COLUMNS).map(|element| word(at(element / COLUMNS, element % COLUMNS))).collect())
}

/// Two of four neighbours of a row, in order.
fn pair(row: usize, group: usize) -> [usize; 2] {
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][(row * 7 + group * 5) % 6]
}

fn places_of(row: usize) -> u64 {
    (0..8).map(|group| (group, pair(row, group))).fold(0, |word, (group, [a, b])| word | ((a | b << 2) as u64) << (4 * group))
}

#[test]
fn products_of_warpgroups_are_those_of_the_expanded_matrix() {
    for selector in [0, 1] {
        let found = multiplied_by_warpgroup(selector, selector, &places_of).unwrap_or_else(|error| panic!("{error}"));
        for (at, &found) in found.iter().enumerate() {
            let (row, column) = (at / COLUMNS, at % COLUMNS);
            let stored = (0..16).map(|at| (at, 4 * (at / 2) + pair(row, at / 2)[at % 2]));
            let sum = stored.fold(1, |sum, (at, k)| sum + a_value(row, at) * b_value(k, column));
            assert_eq!(f32::from_bits(found), sum as f32, "selector {selector}: ({row}, {column})");
        }
    }
}

/// The threads that the selector does not name hold all bits: two equal places, which mean nothing. So do words that are wrong where it looks.
#[test]
fn metadata_of_warpgroups_that_mean_nothing_are_found() {
    let finding = |result: Result<Vec<u32>, EmuError>| match result {
        Err(EmuError::Fault { finding, .. }) => {
            assert_eq!(finding.kind, FindingKind::Matrix, "{finding}");
            finding.to_string()
        }
        other => panic!("nothing is found: {other:?}"),
    };
    let message = finding(multiplied_by_warpgroup(1, 0, &places_of));
    assert!(message.contains("group 0 has 3 as the place of both"), "{message}");
    let message = finding(multiplied_by_warpgroup(0, 0, &|row| if row == 41 { 0x4444_4a44 } else { places_of(row) }));
    assert!(message.contains("row 9: group 2 has 2"), "{message}");
    let message = multiplied_by_warpgroup(2, 0, &places_of).expect_err("a selector that there is not").to_string();
    assert!(message.contains("below 2"), "{message}");
}
