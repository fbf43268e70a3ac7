//! What a launch on the command line can say: `tessera emu` on the kernels of `launches.ptx` and on others.

use std::path::{Path, PathBuf};
use std::process::Command;

const KERNELS: &str = include_str!("launches.ptx");

/// A folder with PTX files, where `tessera` runs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The exit code and everything that was printed.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tessera")).current_dir(&self.0).args(words).output().expect("tessera starts");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().expect("an exit code"), text)
    }

    /// A launch that is right, written as in a shell.
    fn right(&self, line: &str) -> String {
        let words = words(line);
        let (code, text) = self.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, 0, "{line}\n{text}");
        text
    }

    /// One that is refused.
    fn wrong(&self, line: &str) -> String {
        let words = words(line);
        let (code, text) = self.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, 5, "{line}\n{text}");
        text
    }
}

/// The words behind `tessera`, with single quotes as a shell has them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty() && word != "tessera").collect()
}

#[test]
fn the_page_s_examples_run() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/emulator.md")).unwrap();
    let folder = Folder::new(&[("k.ptx", KERNELS)]);
    let lines: Vec<&str> =
        page.lines().filter(|line| line.starts_with("tessera emu k.ptx --entry") && line.contains("block 64")).collect();
    let shown: Vec<String> = lines.iter().map(|line| folder.right(line)).collect();
    assert_eq!(shown.len(), 4, "{lines:?}");
    assert!(
        shown[0].contains("y: f32[64] = [64, 66, 68, 70, 72, 74, ...]") && shown[0].contains("nothing found"),
        "{}",
        shown[0]
    );
    assert!(shown[1].contains("y: f32[64] = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, ...]"), "{}", shown[1]);
    assert!(shown[2].contains("total: f32[1] = [4032]") && folder.path("total.npy").exists(), "{}", shown[2]);
    // Texel x and the one to its right, evenly; three quarters of row 0, one of the last, which is 24 further on.
    assert!(shown[3].contains("y: f32[64] = [6.5, 7.5, 8.5, 9.5, 10.5, 11.5, ...]"), "{}", shown[3]);
}

#[test]
fn values_stand_where_c_puts_them() {
    let folder = Folder::new(&[("k.ptx", KERNELS)]);
    let scale = |what: &str| {
        folder.right(&format!(
            "tessera emu k.ptx --entry scale --grid 1 --block 64 '{what}' y=zeros:f32[4] --array x=arange:f32[4]"
        ))
    };
    let wanted = "y: f32[4] = [0, 2, 4, 6]";
    assert!(scale("{x, i32(4), f32(2)}").contains(wanted));
    assert!(scale("{x, 4, bytes(00000040)}").contains(wanted));
    assert!(scale("{x, {u16(4), pad(2)}, 2.0}").contains(wanted));
    std::fs::write(folder.path("tail.bin"), [4, 0, 0, 0, 0, 0, 0, 0x40]).unwrap();
    assert!(scale("{x, bytes(@tail.bin)}").contains(wanted));
    let wrong = folder.wrong("tessera emu k.ptx --entry scale --grid 1 --block 4 '{zeros:f32[4], u8(4), 2.0, 1}' y=zeros:f32[4]");
    assert!(wrong.contains("`{zeros:f32[4], u8(4), 2.0, 1}` for `what`: a struct of 24 bytes for a parameter of 16"), "{wrong}");
}

#[test]
fn addresses_lead_into_arrays_and_variables() {
    let folder = Folder::new(&[("k.ptx", KERNELS)]);
    let add = |parts: &str| {
        folder.right(&format!(
            "tessera emu k.ptx --entry add --grid 1 --block 2 '{parts}' y=empty:f32[2] --array x=arange:f32[2,4]"
        ))
    };
    assert!(add("[x[1], x[1,2]]").contains("y: f32[2] = [10, 12]"));
    assert!(add("[x+4, x[0,3]+4]").contains("y: f32[2] = [5, 7]"));
    // The output is an input.
    let same = folder.right("tessera emu k.ptx --entry add --grid 1 --block 4 '[x=arange:f32[4], x]' x");
    assert!(same.contains("x: f32[4] = [0, 2, 4, 6]"), "{same}");
    let look = folder.right(
        "tessera emu k.ptx --entry look --grid 1 --block 1 y=empty:f32[2] --set total=2.5 --set chosen=total --set 'image=tex(arange:f32[4])'",
    );
    assert!(look.contains("y: f32[2] = [2.5, 2]"), "{look}");
    let element = folder.right(
        "tessera emu k.ptx --entry scale --grid 1 --block 4 '{ones:f32[4], 4, 1.0}' y=empty:f32[4] --set 'table[1]=7' --set table+12=0.5",
    );
    assert!(element.contains("y: f32[4] = [1, 8, 1, 1.5]"), "{element}");
}

#[test]
fn launches_follow_each_other_on_the_same_memory() {
    let folder = Folder::new(&[("k.ptx", KERNELS), ("other.ptx", KERNELS)]);
    let shown = folder.right(
        "tessera emu k.ptx --entry fill --grid 1 --block 8 x=empty:f32[8] --sanitize all --then --entry add --grid 1 --block 8 '[x, x]' y=empty:f32[8] \
         --then --file other.ptx --entry add --grid 1 --block 8 '[y, x]' z=empty:f32[8]",
    );
    assert!(
        shown.contains("y: f32[8] = [0, 2, 4, 6, 8, 10, ...]") && shown.contains("z: f32[8] = [0, 3, 6, 9, 12, 15, ...]"),
        "{shown}"
    );
    assert_eq!(shown.matches("nothing found").count(), 3, "{shown}");
    // What a launch in front did not write is found in the one behind it.
    let words = words(
        "tessera emu k.ptx --entry fill --grid 1 --block 4 x=empty:f32[8] --sanitize all --json --then --entry sum --grid 1 --block 8 x",
    );
    let (code, text) = folder.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let data: serde_json::Value = serde_json::from_str(&text).expect("data alone");
    assert_eq!(
        (code, data["findings"][0]["id"].as_str(), data["launches"].as_array().map(Vec::len)),
        (2, Some("uninitialized"), Some(2)),
        "{text}"
    );
    let wrong =
        folder.wrong("tessera emu k.ptx --entry fill --grid 1 --block 4 x=empty:f32[8] --then --entry sum --grid 1 x --json");
    assert!(wrong.contains("`--then --entry sum --grid 1 x --json`") && wrong.contains("--block"), "{wrong}");
}

#[test]
fn mistakes_say_where_they_are() {
    let folder = Folder::new(&[("k.ptx", KERNELS)]);
    for (line, part) in [
        ("--entry fill --grid 1 --block 4 y", "`y` for `x`: there is no array or variable `y`"),
        ("--entry fill --grid 1 --block 4 f32[4]", "an array needs a distribution before its type"),
        ("--entry fill --grid 1 --block 4 '[1, 2'", "neither a number"),
        ("--entry fill --grid 1 --block 4 f32(1.5)", "a value of 4 bytes for a parameter of 8"),
        ("--entry fill --grid 1 --block 4 'map(x=zeros:f32[4];box=4)'", "a map has no `box`"),
        ("--entry fill --grid 1 --block 4 'tex(x=zeros:f32[4];bilinear)'", "a texture or surface has no `bilinear`"),
        ("--entry fill --grid 1 --block 4 x=zeros:f32[4] --set y=1", "`--set y=1`: there is no array or variable `y`"),
        ("--entry fill --grid 1 --block 4 x=zeros:f32[4] --set total=f64(1)", "8 bytes for the 4 of `total`"),
        ("--entry fill --grid 1 --block 4 x=zeros:f32[4] --array zeros:f32[4]", "an array needs a name"),
        ("--entry fill --grid 1 --block 4 x=zeros:f32[4] --array 'x=i32(5000000000)'", "5000000000 does not fit i32"),
        ("--entry fill --grid 1 --block 4 zeros:f32[4] --target sm_75", "the module is for sm_80, the device is sm_75"),
        ("--entry fill --grid 1 --block 4 zeros:f32[4] --target sm_77", "no chip `sm_77` is emulated"),
    ] {
        let text = folder.wrong(&format!("tessera emu k.ptx {line}"));
        assert!(text.contains(part), "{line}\n{text}");
    }
    for target in ["sm_80", "sm_86", "sm_90", "sm_90a", "compute_90", "h200"] {
        folder.right(&format!("tessera emu k.ptx --entry fill --grid 1 --block 4 zeros:f32[4] --target {target}"));
    }
}

/// Copies a box of 4 x 2 elements, wherever a map's tensor is, to the output.
const BOX: &str = "
.version 8.7
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[128];
.shared .align 8 .b64 bar;
.visible .entry k(.param .align 64 .b8 map[128], .param .u32 x, .param .u32 y, .param .u64 out)
{
    .reg .pred %first, %q;
    .reg .b32 %i, %x, %y, %v;
    .reg .b64 %map, %out;
    ld.param.u32 %x, [x];
    ld.param.u32 %y, [y];
    ld.param.u64 %out, [out];
    mov.u64 %map, map;
    cvta.param.u64 %map, %map;
    mov.u32 %i, %tid.x;
    setp.eq.u32 %first, %i, 0;
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    @%first fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 32;
    @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%map, {%x, %y}], [bar];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
    @!%q bra wait;
    mov.u32 %v, tile;
    mad.lo.u32 %v, %i, 4, %v;
    ld.shared.b32 %v, [%v];
    mad.wide.u32 %out, %i, 4, %out;
    st.global.b32 [%out], %v;
    ret;
}";

#[test]
fn maps_are_strided_stepped_and_filled() {
    let folder = Folder::new(&[("k.ptx", BOX)]);
    let shown = |map: &str, at: &str| {
        folder.right(&format!(
            "tessera emu k.ptx --grid 1 --block 8 --sanitize all 'map(a=arange:f32[8,16];{map})' {at} y=empty:f32[8] --save y=y.npy"
        ));
        let bytes = std::fs::read(folder.path("y.npy")).unwrap();
        let numbers = bytes[bytes.len() - 32..].chunks(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
        numbers.collect::<Vec<f32>>()
    };
    assert_eq!(shown("tile=4,2", "1 2"), [33.0, 34.0, 35.0, 36.0, 49.0, 50.0, 51.0, 52.0]);
    // Every third row of the array.
    assert_eq!(shown("tile=4,2;shape=16,2;strides=192", "0 0"), [0.0, 1.0, 2.0, 3.0, 48.0, 49.0, 50.0, 51.0]);
    assert_eq!(shown("tile=4,4;steps=1,2", "0 1"), [16.0, 17.0, 18.0, 19.0, 48.0, 49.0, 50.0, 51.0]);
    let outside = shown("tile=4,2;fill=nan", "14 7");
    assert_eq!(outside[..2], [126.0, 127.0]);
    assert!(outside[2..].iter().all(|value| value.is_nan()), "{outside:?}");
    assert_eq!(shown("tile=4,2;fill=zero", "14 7")[1..], [127.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let wrong =
        folder.wrong("tessera emu k.ptx --grid 1 --block 8 'map(a=arange:i32[8,16];tile=4,2;fill=nan)' 0 0 y=empty:f32[8]");
    assert!(wrong.contains("have no NaN to fill with"), "{wrong}");
    let wrong =
        folder.wrong("tessera emu k.ptx --grid 1 --block 8 'map(a[1,0];tile=4,2)' 0 0 y=empty:f32[8] --array a=zeros:f32[4,4]");
    assert!(wrong.contains("`shape=INNER,...` has to be said"), "{wrong}");
    let wrong = folder
        .wrong("tessera emu k.ptx --grid 1 --block 8 'map(a=zeros:f32[4,4,4,4];channels=4;pixels=4;lower=0)' 0 0 y=empty:f32[8]");
    assert!(wrong.contains("corners of the im2col mode have 2 coordinates"), "{wrong}");
}

#[test]
fn what_a_kernel_printed_before_it_stopped_is_printed() {
    let text = "import cuda.tile as ct\n\n@ct.kernel\ndef k(x):\n    print('so far')\n    ct.assert_(ct.sum(ct.load(x, (0,), (1024,))) > 0, 'no more')\n";
    let folder = Folder::new(&[("k.py", text)]);
    for device in ["cpu", "emu"] {
        let (code, text) = folder.run(&["run", "k.py::k", "x=zeros:f32[1024]", "--grid", "1", "--device", device]);
        assert!(
            code == 2 && text.starts_with("so far\n") && text.contains("assertion failed: no more"),
            "{device}: {code}\n{text}"
        );
    }
}
