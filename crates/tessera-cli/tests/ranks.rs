//! `tessera run` of a function that a mesh divides, on its ranks.

use crate::command_line::tessera_in;

#[test]
fn a_function_with_a_mesh_runs_on_its_ranks() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "graph @product(%A: operand<4x8xf32> {sharding = \"[_, tp]\"}, %B: operand<8x4xf32>, %C: operand<4x4xf32>) \
                abi(A: operand<f32, [\"4\", \"8\"]>, B: operand<f32, [\"8\", \"4\"]>, C: operand<f32, [\"4\", \"4\"]>) mesh(tp=2) {
  %a = graph.load %A : tensor<4x8xf32>
  %b = graph.load %B : tensor<8x4xf32>
  %c = graph.contract %a, %b : tensor<4x4xf32>
  graph.store %c, %C
  return
}
";
    std::fs::write(folder.path().join("product.tir"), text).expect("written");
    let arguments = ["A=ones:f32[4,8]", "B=arange:f32[8,4]", "C=empty:f32[4,4]"];
    let run = |rest: &[&str]| tessera_in(folder.path(), &[&["run", "product.tir::product"], &arguments[..], rest].concat());
    let (code, printed) = run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("on 2 simulated ranks") && printed.contains("graph.shard, graph.all_reduce"), "{printed}");
    assert!(printed.contains("C: f32[4, 4] = [112, 120, 128, 136, 112, 120, ...]"), "{printed}");
    for rest in [&["--device", "emu"][..], &["--device", "emu", "--sanitize", "all", "--schedule", "random", "--seed", "3"]] {
        let (code, printed) = run(rest);
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains("on 2 emulated devices"), "{printed}");
        assert!(printed.contains("C: f32[4, 4] = [112, 120, 128, 136, 112, 120, ...]"), "{printed}");
    }
    let (code, printed) = run(&["--device", "emu", "--sanitize", "all", "--json"]);
    assert_eq!(code, 0, "{printed}");
    let told: serde_json::Value = serde_json::from_str(&printed).expect("one object");
    let kernels: Vec<&str> = told["launches"].as_array().into_iter().flatten().filter_map(|it| it["kernel"].as_str()).collect();
    assert_eq!(kernels.iter().filter(|kernel| **kernel == "small_all_reduce").count(), 2, "{printed}");
    assert_eq!((&told["checked"], &told["passed"]), (&true.into(), &true.into()), "{printed}");
    for (rest, said) in [
        (&["--schedule", "random"][..], "`--schedule` is for a kernel of one device"),
        (&["--device", "emu", "--seed", "3"], "`--seed` fixes the emulator's random schedule"),
        (&["--device", "emu", "--ranks", "2", "--grid", "1"], "`--grid` is for a kernel of one device"),
    ] {
        let (code, printed) = run(rest);
        assert_eq!(code, 5, "{printed}");
        assert!(printed.contains(said), "{printed}");
    }
    for ranks in ["1", "4", "8"] {
        let (code, printed) = run(&["--ranks", ranks, "--check-calls"]);
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains(&format!("on {ranks} simulated ranks")), "{printed}");
        assert!(printed.contains("C: f32[4, 4] = [112, 120, 128, 136, 112, 120, ...]"), "{printed}");
    }
    let (code, printed) = run(&["--ranks", "3"]);
    assert_eq!(code, 5, "{printed}");
    assert!(printed.contains("does not divide by the 3 ranks"), "{printed}");
    let (code, printed) = tessera_in(folder.path(), &["opt", "product.tir", "--pass", "collective-insertion", "--verify-each"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("ranks(tp=2)") && printed.contains("graph.all_reduce [%c]"), "{printed}");
}

/// A product of two ranks, and an array that nobody writes.
fn product(folder: &std::path::Path) {
    let text = "graph @f(%A: operand<@Mx@Kxf32>, %B: operand<@Kx@Nxf32> {sharding = \"[_, tp]\"}, %C: operand<@Mx@Nxf32> {sharding = \"[_, tp]\"}, \
                %D: operand<@Mx@Nxf32>) abi(A: operand<f32, [\"M\", \"K\"]>, B: operand<f32, [\"K\", \"N\"]>, C: operand<f32, [\"M\", \"N\"]>, D: operand<f32, [\"M\", \"N\"]>) mesh(tp=2) {
  %a = graph.load %A : tensor<@Mx@Kxf32>
  %b = graph.load %B : tensor<@Kx@Nxf32>
  %c = graph.contract %a, %b : tensor<@Mx@Nxf32>
  graph.store %c, %C
  return
}
";
    std::fs::write(folder.join("f.tir"), text).expect("written");
}

#[test]
fn what_ranks_did_not_write_is_told_as_of_one_device() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    product(folder.path());
    let run = |rest: &str| {
        let words: Vec<&str> = rest.split(' ').filter(|word| !word.is_empty()).collect();
        tessera_in(folder.path(), &[&["run", "f.tir::f", "B=randn:f32[8,10]"], &words[..]].concat())
    };
    for device in ["cpu", "emu"] {
        let whole = format!("A=randn:f32[6,8] C=empty:f32[6,10] D=zeros:f32[6,10] --device {device} --sanitize all");
        let (code, printed) = run(&whole);
        assert!(code == 0 && printed.contains(", checked: nothing found"), "{printed}");
        let partly = whole.replace("D=zeros", "D=empty");
        let (code, printed) = run(&partly);
        assert_eq!(code, 2, "{printed}");
        assert!(printed.contains("error[unwritten]") && printed.contains("checked: 1 found"), "{printed}");
        assert!(printed.contains("`D` was given as `empty`, and the kernel has no store to `D`"), "{printed}");
        let (code, printed) = run(&partly.replace(" --sanitize all", ""));
        assert!(code == 0 && printed.contains("warning[unwritten]"), "{printed}");
        let (code, printed) = run(&format!("{partly} --json"));
        assert!(code == 2 && printed.contains("\"id\":\"unwritten\""), "{printed}");
        let (code, printed) = run(&format!("A=empty:f32[6,8] C=empty:f32[6,10] D=zeros:f32[6,10] --device {device}"));
        assert!(code == 0 && printed.contains("60 of 60 elements of `C` depend on what was in memory before"), "{printed}");
        let (code, printed) = run(&whole.replace("A=randn", "A=empty"));
        assert_eq!(code, 2, "{printed}");
    }
}

#[test]
fn arrays_without_elements_are_divided_as_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    product(folder.path());
    for device in ["cpu", "emu"] {
        for (arrays, shown) in [
            (
                ["A=ones:f32[4,0]", "B=ones:f32[0,6]", "C=empty:f32[4,6]", "D=zeros:f32[4,6]"],
                "C: f32[4, 6] = [0, 0, 0, 0, 0, 0, ...]",
            ),
            (["A=ones:f32[0,4]", "B=ones:f32[4,6]", "C=empty:f32[0,6]", "D=zeros:f32[0,6]"], "C: f32[0, 6] = []"),
            (["A=ones:f32[4,4]", "B=ones:f32[4,0]", "C=empty:f32[4,0]", "D=zeros:f32[4,0]"], "C: f32[4, 0] = []"),
        ] {
            let (code, printed) = tessera_in(folder.path(), &[&["run", "f.tir::f", "--device", device], &arrays[..]].concat());
            assert!(code == 0 && printed.contains(shown), "{device}: {printed}");
        }
    }
}

#[test]
fn sizes_that_do_not_divide_are_a_matter_of_the_command_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    product(folder.path());
    for device in ["cpu", "emu"] {
        let arrays = ["A=ones:f32[6,8]", "B=ones:f32[8,9]", "C=empty:f32[6,9]", "D=zeros:f32[6,9]"];
        let (code, printed) = tessera_in(folder.path(), &[&["run", "f.tir::f", "--device", device], &arrays[..]].concat());
        assert!(code == 5 && printed.contains("axis 1 of `B`, [8, 9], does not divide by the 2 ranks of `tp`"), "{printed}");
        assert!(printed.contains("pad it to 10"), "{printed}");
    }
}
