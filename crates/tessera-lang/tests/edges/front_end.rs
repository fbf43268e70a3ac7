//! NVIDIA's front end, asked whether it takes a statement and of what type the result is.

use std::fmt::Write;
use std::process::{Command, Stdio};

use super::{KERNEL_PARAMETERS, parameters_of};

const DRIVER: &str = r#"
import importlib.util, io, signal, sys, warnings
sys.dont_write_bytecode = True
warnings.simplefilter("ignore")
import cuda.tile as ct
from cuda.tile.compilation import export_kernel, KernelSignature, ArrayConstraint, ScalarConstraint, ListConstraint, ConstantConstraint, CallingConvention

def array(dtype, n):
    return ArrayConstraint(dtype, n, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False,
                           stride_constant=(None,) * (n - 1) + (1,), base_addr_divisible_by=16)

def lists(dtype, rank):
    item = ArrayConstraint(dtype, rank, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(), may_alias_internally=False)
    return ListConstraint(item, alias_groups=(), elements_may_alias=False)

class Late(BaseException):
    pass

def late(*_):
    raise Late
signal.signal(signal.SIGVTALRM, late)

found = None
def show(value):
    if isinstance(value, (bool, int, float, str, type(None), ct.DType)):
        return "const"
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item) for item in value) + ")"
    if isinstance(value, ct.Tile) or type(value).__name__ == "SymbolicTile":
        return f"{value.dtype}{list(value.shape)}".replace(" ", "")
    if isinstance(value, ct.Array):
        return f"array {value.dtype} {value.ndim}"
    return "ok"

def note(value):
    global found
    found = show(value)

def judge(path, count, names, signatures):
    global found
    spec = importlib.util.spec_from_file_location("edges", path)
    module = importlib.util.module_from_spec(spec)
    module.note = note
    spec.loader.exec_module(module)
    for at in range(count):
        found = "ok"
        signal.setitimer(signal.ITIMER_VIRTUAL, 5)
        try:
            signature = KernelSignature([ARGUMENTS[name]() for name in signatures[at]], CallingConvention.cutile_python_v2())
            export_kernel(getattr(module, f"k{at}"), [signature], io.BytesIO(), gpu_code="sm_100", output_format="tileir_bytecode", bytecode_version="13.4")
            print(found)
        except Exception as error:
            print("-", type(error).__name__, str(error).replace("\n", " ")[:200])
        except Late:
            print("- it does not come to an end")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    sys.stdout.flush()
"#;

const ARGUMENTS: &str = r#"
ARGUMENTS = {
    "x": lambda: array(ct.float32, 1), "y": lambda: array(ct.float32, 1), "m": lambda: array(ct.float32, 2), "c": lambda: array(ct.float32, 3),
    "q": lambda: array(ct.int32, 1), "qq": lambda: array(ct.int32, 2), "h": lambda: array(ct.float16, 2), "e": lambda: array(ct.float8_e4m3fn, 2),
    "l": lambda: lists(ct.float32, 2), "n": lambda: ScalarConstraint(ct.int32), "w": lambda: ScalarConstraint(ct.int64),
    "u": lambda: ScalarConstraint(ct.uint32), "f": lambda: ScalarConstraint(ct.float32), "p": lambda: ScalarConstraint(ct.bool_),
    "N": lambda: ConstantConstraint(16),
}
"#;

/// What each statement comes to: a type, or `-` and why not. `None` where there is no interpreter.
pub(crate) fn verdicts(statements: &[String]) -> Option<Vec<String>> {
    let python = std::env::var_os("TESSERA_PYTHON")?;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut answers = Vec::new();
    // Two processes, since the front end uses one processor.
    let chunks: Vec<&[String]> = statements.chunks(statements.len().div_ceil(2).max(1)).collect();
    let children: Vec<_> = chunks
        .iter()
        .enumerate()
        .map(|(number, chunk)| {
            let mut script = format!("{DRIVER}{ARGUMENTS}");
            // Small files: a front end that reads source looks for each function in the whole of it.
            for (part, statements) in chunk.chunks(100).enumerate() {
                let path = folder.path().join(format!("edges{number}_{part}.py"));
                let mut module = String::from("import cuda.tile as ct\nimport math\nimport operator\n");
                let mut signatures = String::new();
                for (at, statement) in statements.iter().enumerate() {
                    let params = parameters_of(statement);
                    let _ = write!(signatures, "{params:?}, ");
                    let annotated: Vec<String> = params
                        .iter()
                        .map(|name| if name == "N" { "N: ct.Constant[int]".to_string() } else { name.clone() })
                        .collect();
                    let _ = writeln!(module, "\n@ct.kernel\ndef k{at}({}):", annotated.join(", "));
                    for line in statement.lines() {
                        let _ = writeln!(module, "    {line}");
                    }
                    if has_result(statement) {
                        let _ = writeln!(module, "    ct.static_eval(note(r))");
                    }
                }
                std::fs::write(&path, module).expect("a temporary file can be written");
                let _ = writeln!(script, "judge({path:?}, {}, None, [{signatures}])", statements.len());
            }
            let path = folder.path().join(format!("driver{number}.py"));
            std::fs::write(&path, script).expect("a temporary file can be written");
            Command::new(&python).arg(&path).stdout(Stdio::piped()).spawn().expect("the interpreter runs")
        })
        .collect();
    // Both are read at once: one that no one reads would stop.
    let readers: Vec<_> = children.into_iter().map(|child| std::thread::spawn(move || child.wait_with_output())).collect();
    for (reader, chunk) in readers.into_iter().zip(chunks) {
        let output = reader.join().expect("a reader ends").expect("the interpreter runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.lines().count() == chunk.len(), "the front end's driver failed: {text}");
        answers.extend(text.lines().map(str::to_string));
    }
    Some(answers)
}

/// What the front end has no value for that compile-time code could look at.
const UNSEEN: [&str; 3] = ["r = ct.Slice(", "r = m.tiled_view(", "r = m.get_raw_memory("];

/// True when a statement's result is looked at: it is bound at the outermost level, on every path.
pub(crate) fn has_result(statement: &str) -> bool {
    let is_seen = |line: &str| line.starts_with("r = ") && !UNSEEN.iter().any(|start| line.starts_with(start));
    statement.lines().last().is_some_and(is_seen)
}

/// The kernel's parameters in one place.
pub(crate) fn arguments_text(params: &[String]) -> String {
    let of = |name: &String| KERNEL_PARAMETERS.iter().find(|(own, _)| own == name).map_or("", |(_, ty)| *ty);
    params.iter().map(of).collect::<Vec<_>>().join(", ")
}
