//! `tessera bench` of collectives, on ranks of this host: threads, processes, and processes that a launcher started.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    command.args(arguments).env("TESSERA_DEVICE", "cpu");
    command
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn summaries(lines: &str) -> Vec<Value> {
    let records = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["kind"] == "summary").collect()
}

#[test]
fn threads_and_processes_take_turns() {
    let arguments = [
        "bench",
        "all_reduce",
        "all_to_all",
        "--ranks",
        "3",
        "--precision",
        "bf16",
        "--sizes",
        "bytes=4096",
        "--json",
        "--timed",
        "2",
    ];
    let (code, out, err) = texts(&command(&arguments).output().expect("it runs"));
    assert_eq!(code, 0, "{out}{err}");
    let rows = summaries(&out);
    assert_eq!(rows.len(), 4, "{out}");
    for row in &rows {
        assert!(["ok", "not_converged"].contains(&row["status"].as_str().unwrap_or_default()), "{row}");
        let factor = row["bus_bytes_s"].as_f64().expect("a bus rate") / row["bytes_s"].as_f64().expect("a rate");
        assert!((factor - 4.0 / 3.0).abs() < 1e-9 || (factor - 2.0 / 3.0).abs() < 1e-9, "{row}");
    }
    let names: Vec<&str> = rows.iter().filter_map(|row| row["impl"].as_str()).collect();
    assert_eq!((names.iter().filter(|name| **name == "tcp").count(), names.len()), (2, 4));
}

/// A rank that a launcher would start.
fn rank(rank: usize, ranks: usize, port: u16, arguments: &[&str]) -> Child {
    let variables = [
        ("RANK", rank),
        ("LOCAL_RANK", rank),
        ("WORLD_SIZE", ranks),
        ("LOCAL_WORLD_SIZE", ranks),
        ("MASTER_PORT", usize::from(port)),
    ];
    let mut command = command(arguments);
    command.env("MASTER_ADDR", "127.0.0.1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(variables.map(|(name, value)| (name, value.to_string()))).spawn().expect("it starts")
}

#[test]
fn ranks_of_a_launcher_are_asked_by_the_first() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let arguments = ["bench", "collectives", "--precision", "fp32", "--sizes", "bytes=4096", "--json"];
    let ranks: Vec<Child> = (0..3).map(|own| rank(own, 3, port, &arguments)).collect();
    let outputs: Vec<_> = ranks.into_iter().map(|rank| texts(&rank.wait_with_output().expect("it ends"))).collect();
    for (rank, (code, out, err)) in outputs.iter().enumerate() {
        assert_eq!(*code, 0, "rank {rank}: {out}{err}");
        assert!(rank == 0 || out.is_empty(), "rank {rank} says {out}");
    }
    let rows = summaries(&outputs[0].1);
    assert_eq!(rows.len(), 6, "{}", outputs[0].1);
    assert!(rows.iter().all(|row| row["impl"] == "tcp" && row["median_ns"].as_f64().is_some_and(|time| time > 0.0)), "{rows:?}");
}

#[test]
fn what_cannot_be_done_is_told_before_ranks_start() {
    let said = |arguments: &[&str]| {
        let (code, out, err) = texts(&command(&[&["bench"], arguments].concat()).output().expect("it runs"));
        assert!(!out.contains("ranks on the CPU"), "{out}");
        (code, err)
    };
    let cases: [(&[&str], i32, &str); 11] = [
        (&["all_reduce", "--ranks", "1"], 5, "there is nobody to exchange with"),
        (&["all_reduce", "gemm"], 5, "measure them in two runs"),
        (&["gemm", "--ranks", "2"], 5, "`--ranks` is for collectives"),
        (&["all_reduce", "--over", "ib"], 5, "write threads, tcp"),
        (&["all_reduce", "--over", "tcp,tcp"], 5, "`tcp` is named twice"),
        (&["all_reduce", "--precision", "fp64"], 5, "they have fp32, fp16 and bf16"),
        (&["all_reduce", "--sizes", "m=5"], 5, "`m` is no size of a collective"),
        (&["all_reduce", "--sizes", "bytes=16", "--ranks", "4"], 5, "write 64 bytes or more"),
        (&["all_reduce", "--timing", "graph"], 5, "leave out `--timing`"),
        (&["all_reduce", "--ways", "2"], 5, "`--ways` has no meaning for collectives"),
        (&["all_reduce", "--device", "emu"], 5, "write `--device cpu` or `--device cuda`"),
    ];
    for (arguments, wanted, text) in cases {
        let (code, err) = said(arguments);
        assert_eq!(code, wanted, "{arguments:?}: {err}");
        assert!(err.contains(text), "{arguments:?}: {err}");
    }
}

#[test]
fn a_baseline_that_does_not_start_is_told_once() {
    let arguments = [
        "bench",
        "all_reduce",
        "--precision",
        "bf16",
        "--sizes",
        "bytes=4096",
        "--over",
        "threads",
        "--baseline",
        "none=sh -c exit",
    ];
    let (code, _, err) = texts(&command(&arguments).output().expect("it runs"));
    assert_eq!(code, 4, "{err}");
    assert!(
        err.matches("its process ended").count() == 1
            && err.contains("of `none`: its process ended")
            && !err.contains("No such file"),
        "{err}"
    );
}

#[test]
fn a_baseline_beside_has_its_ways() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../baselines/collectives.py");
    let has_torch = Command::new("python3").args(["-c", "import torch"]).output().is_ok_and(|output| output.status.success());
    if !has_torch {
        eprintln!("skipped: no PyTorch for python3");
        return;
    }
    let baseline = format!("torch=python3 {}", script.display());
    let arguments = [
        "bench",
        "all_reduce",
        "--precision",
        "bf16",
        "--sizes",
        "bytes=4096",
        "--over",
        "threads",
        "--json",
        "--baseline",
        &baseline,
    ];
    let (code, out, err) = texts(&command(&arguments).output().expect("it runs"));
    assert_eq!(code, 0, "{out}{err}");
    assert!(summaries(&out).iter().any(|row| row["impl"] == "torch gloo" && row["status"] != "unsupported"), "{out}");
}
