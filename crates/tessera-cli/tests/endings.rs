//! How commands end where a file, a reader or a process is in the way of them: with the code of what they found, or of what hindered them.
#![cfg(unix)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const KERNELS: &str = "import cuda.tile as ct

@ct.kernel
def dead(x, y):
    if ct.bid(0) > 1000:
        ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (16,)))
";
const ADD: &str = "import cuda.tile as ct

@ct.kernel
def add(x, y, T: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (T,)) + 1)
";
const DEAD: &str = "check k.py::dead x=ones:f32[64] y=empty:f32[64] --device cpu --grid 4";
const BENCH: &str = "bench vector --device cpu --precision fp32 --sizes n=64";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("k.py"), KERNELS).expect("written");
    folder
}

fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    command.current_dir(folder).args(line.split_whitespace());
    command
}

fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("an exit code"), text(&output.stdout), text(&output.stderr))
}

fn tessera(folder: &Path, line: &str) -> (i32, String, String) {
    ended(&command(folder, line).output().expect("tessera starts"))
}

#[test]
fn a_file_of_another_suite_is_not_resumed() {
    let folder = folder();
    let here = folder.path();
    assert_eq!(tessera(here, &format!("{BENCH} --out r.jsonl")).0, 0);
    let before = fs::read(here.join("r.jsonl")).unwrap();
    let other = "bench vector --device cpu --precision fp32 --sizes n=128 --resume r.jsonl";
    let (code, out, error) = tessera(here, other);
    assert_eq!(code, 5, "{out}\n{error}");
    assert!(error.contains("error: cannot resume: the file was written for another suite"), "{error}");
    // Rows of the other run are not this one's result.
    assert!(!out.contains("wrote") && !out.contains("copy"), "{out}");
    let (code, out, _) = tessera(here, &format!("{other} --json"));
    let told: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!((code, told["exit"].as_u64()), (5, Some(5)), "{out}");
    assert!(told["error"].as_str().unwrap().contains("cannot resume"), "{out}");
    assert_eq!(fs::read(here.join("r.jsonl")).unwrap(), before);
}

#[test]
fn a_run_that_cannot_write_ends_with_4() {
    let folder = folder();
    // Files may have so many blocks of 512 bytes, as on a disk that is full then. Of these, a run of any row takes more.
    for blocks in [1, 8] {
        let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        shell.current_dir(&folder).args(["-c", &limited, env!("CARGO_BIN_EXE_tessera")]);
        let sizes = "n=64,128,256,512,1024,2048,4096,8192";
        shell.args(["bench", "vector", "--device", "cpu", "--precision", "fp32", "--sizes", sizes, "--out", "r.jsonl"]);
        let (code, out, error) = ended(&shell.output().expect("sh starts"));
        assert_eq!(code, 4, "{out}\n{error}");
        assert!(error.contains("File too large"), "{error}");
    }
}

/// A disk that is full, or a file that may become no larger, leaves what a command was to replace.
#[test]
fn a_file_that_cannot_be_written_is_as_it_was() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("add.py"), ADD).unwrap();
    let run = |elements: usize| {
        format!("run add.py::add x=ones:f32[{elements}] y=empty:f32[{elements}] T=128 --grid {} --device cpu", elements / 128)
    };
    for (line, file) in [
        (format!("{} --save y=y.npy", run(25600)), "y.npy"),
        ("bundle add.py::add x=f32[?] y=f32[?] T=128 -o x.tbundle".to_string(), "x.tbundle"),
        ("compile add.py::add x=f32[?] y=f32[?] T=128 --emit ptx --target sm_90a -o x.ptx".to_string(), "x.ptx"),
    ] {
        let before = "what was there before";
        fs::write(here.join(file), before).unwrap();
        let mut shell = Command::new("sh");
        let limited = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
        shell.current_dir(here).args(["-c", limited, env!("CARGO_BIN_EXE_tessera")]).args(line.split(' '));
        let (code, out, error) = ended(&shell.output().expect("sh starts"));
        assert!(code == 4 && error.contains("File too large"), "{line}: {out}\n{error}");
        assert_eq!(fs::read_to_string(here.join(file)).unwrap(), before, "{line}");
        let (code, out, error) = tessera(here, &line);
        assert_eq!(code, 0, "{line}: {out}\n{error}");
        assert_ne!(fs::read(here.join(file)).unwrap(), before.as_bytes(), "{line}");
    }
    let left: Vec<String> = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

/// Who may read a file stays as it was; what is no file, and what a link leads to, is written and not replaced.
#[test]
fn what_is_written_keeps_its_kind() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("add.py"), ADD).unwrap();
    let save = |to: &str| {
        let line = format!("run add.py::add x=ones:f32[128] y=empty:f32[128] T=128 --grid 1 --device cpu --save y={to}");
        let (code, out, error) = tessera(here, &line);
        assert_eq!(code, 0, "{out}\n{error}");
    };
    fs::write(here.join("y.npy"), "").unwrap();
    fs::set_permissions(here.join("y.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("y.npy", here.join("link.npy")).unwrap();
    save("link.npy");
    assert!(fs::symlink_metadata(here.join("link.npy")).unwrap().is_symlink());
    let told = fs::metadata(here.join("y.npy")).unwrap();
    assert_eq!((told.len(), told.permissions().mode() & 0o777), (128 + 512, 0o640));
    save("/dev/null");
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_reader_that_has_gone_takes_nothing_from_the_verdict() {
    let folder = folder();
    for line in [DEAD, &format!("{DEAD} --json"), "list nothing --json", "completions bash", "--help"] {
        let closed = || {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            writer
        };
        let expected = tessera(folder.path(), line).0;
        let alone = command(folder.path(), line).stdout(closed()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(alone.code(), Some(expected), "{line}");
        let both = command(folder.path(), line).stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(both.code(), Some(expected), "{line}");
    }
    assert_eq!((tessera(folder.path(), DEAD).0, tessera(folder.path(), "completions bash").0), (2, 0));
}

#[test]
#[cfg(target_os = "linux")]
fn an_output_that_is_full_is_told_and_ends_with_4() {
    let folder = folder();
    for (line, expected) in [("completions bash", 4), ("list ops", 4), ("--help", 4), (&format!("{DEAD} --json") as &str, 2)] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, _, error) = ended(&command(folder.path(), line).stdout(full).output().unwrap());
        assert_eq!(code, expected, "{line}\n{error}");
        assert!(error.contains("error: can't write to the standard output: No space left on device"), "{line}\n{error}");
    }
}

#[test]
fn results_go_through_links_and_to_regular_files_alone() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("old.jsonl"), "what was there before").unwrap();
    symlink("old.jsonl", here.join("link.jsonl")).unwrap();
    symlink("new.jsonl", here.join("ahead.jsonl")).unwrap();
    for (link, file) in [("link.jsonl", "old.jsonl"), ("ahead.jsonl", "new.jsonl")] {
        let (code, out, error) = tessera(here, &format!("{BENCH} --out {link}"));
        assert_eq!(code, 0, "{out}\n{error}");
        assert!(fs::symlink_metadata(here.join(link)).unwrap().is_symlink());
        assert!(fs::read_to_string(here.join(file)).unwrap().starts_with("{\"kind\":\"session\""));
    }
    assert!(Command::new("mkfifo").arg(here.join("pipe")).status().expect("mkfifo starts").success());
    fs::create_dir(here.join("folder")).unwrap();
    for place in ["pipe", "folder"] {
        for option in ["--out", "--resume"] {
            let (code, out, error) = tessera(here, &format!("{BENCH} {option} {place}"));
            assert_eq!(code, 4, "{out}\n{error}");
            assert!(error.contains(&format!("error: {place}: results go to a regular file, and this is none")), "{error}");
        }
        assert!(!fs::symlink_metadata(here.join(place)).unwrap().is_file());
    }
}

#[test]
fn a_file_that_another_run_writes_is_left_to_it() {
    let folder = folder();
    let here = folder.path();
    assert_eq!(tessera(here, &format!("{BENCH} --out r.jsonl")).0, 0);
    let before = fs::read(here.join("r.jsonl")).unwrap();
    let own = File::open(here.join("r.jsonl")).unwrap();
    own.lock().unwrap();
    for option in ["--out", "--resume"] {
        let (code, out, error) = tessera(here, &format!("{BENCH} {option} r.jsonl"));
        assert_eq!(code, 4, "{out}\n{error}");
        assert!(error.contains("r.jsonl: another run is writing it"), "{error}");
        assert_eq!(fs::read(here.join("r.jsonl")).unwrap(), before);
    }
}

#[test]
fn who_measures_ends_with_who_watches() {
    let folder = folder();
    let path = folder.path().join("r.jsonl");
    // Minutes of rows.
    let line = "bench vector --device cpu --precision fp32 --sizes n=1000..1300 --out r.jsonl";
    let mut watching = command(folder.path(), line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let wait = |what: &str, until: &mut dyn FnMut() -> bool| {
        while !until() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait("a row is begun", &mut || fs::read_to_string(&path).is_ok_and(|text| text.contains("\"kind\":\"case\"")));
    // The child has the file as long as it lives.
    assert!(File::open(&path).unwrap().try_lock().is_err());
    watching.kill().unwrap();
    watching.wait().unwrap();
    wait("the child ends", &mut || File::open(&path).unwrap().try_lock().is_ok());
    assert!(!fs::read_to_string(&path).unwrap().contains("\"kind\":\"end\""));
}
