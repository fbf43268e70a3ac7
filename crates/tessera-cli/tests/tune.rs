//! `tessera tune --predict`: what plans should take, and what is refused. What plans do take is measured where there is one
//! (`results/plans`), and compared here with what the model says of them today.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tessera::bench::rank_correlation;

const TESSERA: &str = env!("CARGO_BIN_EXE_tessera");

const KERNELS: &str = "import cuda.tile as ct

@ct.kernel
def product(A, B, C):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((128, 128), ct.float32)
    for k in range(ct.cdiv(A.shape[1], 64)):
        a = ct.load(A, (i, k), (128, 64), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, (k, j), (64, 128), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(a, b, acc)
    ct.store(C, (i, j), acc)

@ct.kernel
def double(x):
    tile = ct.load(x, (ct.bid(0),), (64,))
    ct.store(x, (ct.bid(0),), tile + tile)
";

const PRODUCT: [&str; 5] = ["A=empty:bf16[4096,4096]", "B=empty:bf16[4096,4096]", "C=empty:f32[4096,4096]", "--grid", "32,32"];

fn tune(folder: &Path, kernel: &str, arguments: &[&str]) -> Output {
    let subject = format!("kernels.py::{kernel}");
    Command::new(TESSERA).current_dir(folder).args(["tune", &subject]).args(arguments).output().expect("tessera starts")
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("kernels.py"), KERNELS).expect("written");
    folder
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

#[test]
fn plans_are_listed_with_what_they_should_take_and_the_first_is_written() {
    let folder = folder();
    let with = |more: &[&str]| tune(folder.path(), "product", &[&PRODUCT[..], &["--predict", "h200"], more].concat());
    let output = with(&["--json", "-o", "best.plan"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = rows(&String::from_utf8(output.stdout).expect("text"));
    assert!(rows.len() >= 30, "{} plans", rows.len());
    let times: Vec<f64> = rows.iter().map(|row| row["predicted_us"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    // 137 Gflop at 989 Tflop/s take 139 us.
    assert!((139.0..250.0).contains(&times[0]), "{times:?}");
    let best = std::fs::read_to_string(folder.path().join("best.plan")).expect("a plan");
    assert_eq!(best, rows[0]["plan"].as_str().expect("a text"));
    let compile = ["compile", "kernels.py::product", "A=bf16[?,?]", "B=bf16[?,?]", "C=f32[?,?]", "--target", "sm_90a", "--emit"];
    let again = Command::new(TESSERA).current_dir(folder.path()).args(compile).args(["plan", "--plan", "best.plan"]).output();
    assert_eq!(String::from_utf8(again.expect("tessera starts").stdout).expect("text"), best);
    let table = String::from_utf8(with(&["--most", "2"]).stdout).expect("text");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("copy 4 warps"), "{table}");
}

#[test]
fn the_ways_of_an_operator_are_listed_with_what_they_should_take() {
    let operator = |arguments: &[&str]| Command::new(TESSERA).arg("tune").args(arguments).output().expect("tessera starts");
    let sizes = ["gemm", "--sizes", "batch=1,m=4096,n=4096,k=4096,variant=nn", "--precision", "bf16", "--predict", "h200"];
    let output = operator(&[&sizes[..], &["--json"]].concat());
    let rows = rows(&String::from_utf8(output.stdout).expect("text"));
    assert!(rows.len() > 100 && rows.iter().all(|row| row["kind"] == "way" && row["kernel"] == "gemm"), "{} ways", rows.len());
    let times: Vec<f64> = rows.iter().map(|row| row["predicted_us"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    // As for plans: 137 Gflop at 989 Tflop/s take 139 us.
    assert!((139.0..250.0).contains(&times[0]), "{}", times[0]);
    let table = String::from_utf8(operator(&[&sizes[..], &["--most", "2"]].concat()).stdout).expect("text");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert!(table.starts_with("gemm nn batch=1,m=4096,n=4096,k=4096 in bf16 on h200\n"), "{table}");
    let refused = |arguments: &[&str], wanted: &str| {
        let output = operator(arguments);
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(5) && text.contains(wanted), "{text}");
    };
    refused(&["softmax", "--predict", "h200"], "`softmax` cuts these cases in one way alone on `h200`");
    refused(&[&sizes[..], &["-o", "best.plan"]].concat(), "`-o best.plan` takes a plan");
}

#[test]
fn choices_go_over_the_options_of_the_decorator() {
    let folder = folder();
    std::fs::write(
        folder.path().join("kernels.py"),
        KERNELS.replace("@ct.kernel\ndef product", "@ct.kernel(num_stages=3)\ndef product"),
    )
    .expect("written");
    let plan = |more: &[&str]| {
        let compile = ["compile", "kernels.py::product", "A=bf16[?,?]", "B=bf16[?,?]", "C=f32[?,?]", "--target", "sm_90a"];
        let output = Command::new(TESSERA).current_dir(folder.path()).args(compile).args(["--emit", "plan"]).args(more).output();
        String::from_utf8(output.expect("tessera starts").stdout).expect("text")
    };
    assert!(plan(&[]).contains("slots=3") && !plan(&[]).contains("turns"), "{}", plan(&[]));
    let chosen = plan(&["--config", "sharing=3,num_stages=4"]);
    assert!(chosen.contains("slots=4") && chosen.contains("turns=2") && chosen.contains("persistent 1"), "{chosen}");
}

#[test]
fn what_has_no_plans_or_no_time_is_refused_with_a_way_out() {
    let folder = folder();
    let refused = |kernel: &str, arguments: &[&str]| {
        let output = tune(folder.path(), kernel, arguments);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let without = refused("double", &["x=empty:f32[64]", "--grid", "1", "--predict", "h200"]);
    assert!(without.contains("`double` has no plan to choose") && without.contains("help:"), "{without}");
    let unknown = refused("product", &[&PRODUCT[..], &["--predict", "h2000"]].concat());
    assert!(unknown.contains("`h2000` is no product") && unknown.contains("tessera list devices"), "{unknown}");
    let on_cpu = ["A=randn:bf16[128,64]", "B=randn:bf16[64,128]", "C=empty:f32[128,128]", "--grid", "1", "--device", "cpu"];
    let text = refused("product", &on_cpu);
    assert!(text.contains("nothing of `product` can be chosen on cpu") && text.contains("`--predict h200`"), "{text}");
    let negative = refused("product", &[&PRODUCT[..], &["--predict", "h200", "--rtol=-1"]].concat());
    assert!(negative.contains("a tolerance is a number from 0 on"), "{negative}");
}

/// The plans of seven kernels in the order of the model, against times of an H100.
#[test]
fn the_model_orders_plans_as_they_were_measured() {
    let results = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/plans"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("predicted.jsonl");
    let script = Command::new(results.join("plans.sh"))
        .arg(TESSERA)
        .arg(&out)
        .args(["--predict", "h100"])
        .env("DRAW", "empty")
        .output()
        .expect("the script starts");
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
    let predicted = rows(&std::fs::read_to_string(&out).expect("rows"));
    let measured = rows(&std::fs::read_to_string(results.join("plans-h100.jsonl")).expect("rows"));
    // A case is a kernel on arrays of some shapes, whatever they hold.
    let shapes = |row: &Value| {
        let texts = row["arguments"].as_array().expect("a list").iter().filter_map(Value::as_str);
        let shape = |text: &str| text.split(';').next().unwrap_or_default().rsplit(':').next().map(str::to_string);
        (row["kernel"].to_string(), texts.filter_map(shape).collect::<Vec<_>>())
    };
    let mut cases: Vec<_> = measured.iter().map(shapes).collect();
    cases.dedup();
    assert_eq!(cases.len(), 7);
    let mut all = 0;
    for case in cases {
        let of = |rows: &[Value], field: &str| -> Vec<(String, f64)> {
            let own = rows.iter().filter(|row| shapes(row) == case);
            own.filter_map(|row| Some((row["plan"].as_str()?.to_string(), row[field].as_f64()?))).collect()
        };
        let (times, model) = (of(&measured, "us"), of(&predicted, "predicted_us"));
        let both = times.iter().filter_map(|(plan, time)| Some((*time, model.iter().find(|(own, _)| own == plan)?.1)));
        let (times, model): (Vec<f64>, Vec<f64>) = both.unzip();
        let correlation = rank_correlation(&times, &model).expect("several plans");
        assert!(correlation >= 0.85, "{}: {correlation:.2} of {} plans", case.0, times.len());
        all += times.len();
    }
    assert!(all >= 200, "{all} plans");
}
