//! Markdown language tests: blocks of code with expectations on their lines.
//!
//! A block opens with ```` ```python ````. With `body` behind it, its lines are the body of a kernel whose parameters are
//! `x`, `y` (float32, rank 1), `m` (float32, rank 2), `q` (int32, rank 1), `h` (float16, rank 2), `n` (int32), `f` (float32)
//! and `N` (the constant 16). With `lines`, each line is such a body of its own. With `ours`, the kernel is not shown to other front ends. A line `# args: x: f32[?,?], n: i32,
//! N = 4` gives the arguments of a block of whole kernels.
//!
//! `# error: 8 [id]` at the end of a line expects a diagnostic that starts there, in that column if a number is given;
//! `# revealed: text` expects what `reveal_type` reports.

#![allow(dead_code, reason = "each crate whose tests use this uses a part")]

use std::path::Path;

use tessera_ir::{Extent, IndexType};
use tessera_lang::{ArgType, ConstValue, LowerOptions, ParsedFile, lower_with_notes, parse_file};
use tessera_types::DType;

const PARAMETERS: &str = "x: f32[?], y: f32[?], m: f32[?,?], q: i32[?], h: f16[?,?], n: i32, f: f32, N = 16";
const PROLOGUE: &str =
    "import cuda.tile as ct\nimport math\nimport operator\n\n@ct.kernel\ndef kernel(x, y, m, q, h, n, f, N: ct.Constant[int]):\n";

/// A block of code with where it stands.
pub(crate) struct Block {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) code: String,
    pub(crate) is_body: bool,
    pub(crate) is_ours: bool,
    is_lines: bool,
}

/// What a line of a block expects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expectation {
    pub(crate) line: usize,
    /// Zero when any column will do.
    pub(crate) column: usize,
    /// `error[id]` or `revealed: text`.
    pub(crate) what: String,
}

/// Every block of the Markdown files in a folder of `tests`.
pub(crate) fn blocks(folder: &str) -> Vec<Block> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tessera-lang/tests").join(folder);
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).expect("the folder of language tests exists").map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut blocks = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|ext| ext == "md")) {
        let text = std::fs::read_to_string(path).unwrap();
        let mut open: Option<Block> = None;
        for (i, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) if info.starts_with("python") => {
                    open = Some(Block {
                        file: path.file_name().unwrap().to_string_lossy().into_owned(),
                        line: i + 2,
                        code: String::new(),
                        is_body: info.contains("body"),
                        is_ours: info.contains("ours"),
                        is_lines: info.contains("lines"),
                    });
                }
                (Some(_), Some(_)) => match open.take() {
                    Some(block) if block.is_lines => blocks.extend(block.lines()),
                    block => blocks.extend(block),
                },
                (Some(block), None) => {
                    block.code.push_str(line);
                    block.code.push('\n');
                }
                _ => {}
            }
        }
    }
    blocks
}

impl Block {
    /// Each line as a block.
    fn lines(self) -> Vec<Block> {
        let block = |(i, line): (usize, &str)| Block {
            file: self.file.clone(),
            line: self.line + i,
            code: format!("{line}\n"),
            is_body: true,
            is_ours: self.is_ours,
            is_lines: false,
        };
        self.code.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(block).collect()
    }

    /// The code as a whole file.
    pub(crate) fn source(&self) -> String {
        if !self.is_body {
            return self.code.clone();
        }
        let body: String =
            self.code.lines().map(|line| if line.is_empty() { "\n".to_string() } else { format!("    {line}\n") }).collect();
        format!("{PROLOGUE}{body}")
    }

    /// Lines and columns that the wrapping adds.
    fn shift(&self) -> (usize, usize) {
        if self.is_body { (PROLOGUE.lines().count(), 4) } else { (0, 0) }
    }

    pub(crate) fn args_text(&self) -> String {
        if self.is_body {
            return PARAMETERS.to_string();
        }
        self.code.lines().find_map(|line| line.strip_prefix("# args: ")).unwrap_or("").to_string()
    }

    pub(crate) fn expectations(&self) -> Vec<Expectation> {
        let mut list = Vec::new();
        for (i, line) in self.code.lines().enumerate() {
            if let Some((_, text)) = line.split_once("# error: ") {
                let (column, id) = text.split_once('[').expect("an expected error names its id in brackets");
                let column = column.trim().parse().unwrap_or(0);
                list.push(Expectation { line: i + 1, column, what: format!("error[{}]", id.trim().trim_end_matches(']')) });
            }
            if let Some((_, text)) = line.split_once("# revealed: ") {
                list.push(Expectation { line: i + 1, column: 0, what: format!("revealed: {}", text.trim()) });
            }
        }
        list.sort();
        list
    }

    pub(crate) fn expects_error(&self) -> bool {
        self.expectations().iter().any(|expectation| expectation.what.starts_with("error"))
    }

    pub(crate) fn parsed(&self) -> ParsedFile {
        parse_file(&self.file, &self.source())
    }

    /// What lowering every kernel of the block reports, in the block's own lines; modules of kernels that lower are verified.
    pub(crate) fn outcome(&self) -> Vec<Expectation> {
        let file = self.parsed();
        let (lines, columns) = self.shift();
        let mut list = Vec::new();
        let mut add = |diagnostic: &tessera_ir::Diagnostic| {
            let rendered = diagnostic.render(&file.sources, false);
            assert!(!rendered.contains("Val::") && !rendered.contains("ScheduleOp"), "an internal name is shown:\n{rendered}");
            let (line, column) = diagnostic
                .primary
                .as_ref()
                .map_or((1, 1), |label| file.sources.get(label.span.source).line_column(label.span.start));
            let what = match diagnostic.id {
                "revealed-type" => format!("revealed: {}", diagnostic.message),
                id => format!("error[{id}]"),
            };
            let column = if what.starts_with("revealed") { 0 } else { column.saturating_sub(columns) };
            list.push(Expectation { line: line.saturating_sub(lines), column, what });
        };
        if file.has_errors() {
            file.diagnostics.iter().for_each(&mut add);
        }
        let options = LowerOptions { reveal: true, ..LowerOptions::default() };
        let args = arguments(&self.args_text());
        for (name, kernel) in &file.kernels {
            let args: Vec<_> = args
                .iter()
                .filter(|(name, _)| self.is_exact() || kernel.params.iter().any(|p| p.name == *name))
                .cloned()
                .collect();
            match lower_with_notes(&file, name, &args, &options) {
                Ok(lowered) => {
                    lowered.notes.iter().for_each(&mut add);
                    let problems = tessera_ir::verify(&lowered.module);
                    if let Some(problem) = problems.first() {
                        panic!(
                            "{}:{}: invalid IR: {}\n{}",
                            self.file,
                            self.line,
                            problem.message,
                            tessera_ir::text::print_module(&lowered.module)
                        );
                    }
                }
                Err(diagnostics) => diagnostics.iter().for_each(&mut add),
            }
        }
        list.sort();
        list
    }

    /// True when every argument that is given must be taken.
    fn is_exact(&self) -> bool {
        self.code.contains("# exact")
    }
}

/// Arguments written as `x: f32[?,64], n: i32, l: list f32[2], N = 4`.
pub(crate) fn arguments(text: &str) -> Vec<(String, ArgType)> {
    let mut list = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let mut depth = 0;
        let end = rest
            .char_indices()
            .find(|(_, c)| {
                match c {
                    '[' | '(' => depth += 1,
                    ']' | ')' => depth -= 1,
                    _ => {}
                }
                *c == ',' && depth == 0
            })
            .map_or(rest.len(), |(i, _)| i);
        let (item, tail) = rest.split_at(end);
        rest = tail.trim_start_matches(',').trim_start();
        if let Some((name, value)) = item.split_once('=') {
            list.push((name.trim().to_string(), ArgType::Const(constant(value.trim()))));
        } else if let Some((name, ty)) = item.split_once(':') {
            list.push((name.trim().to_string(), arg_type(ty.trim())));
        }
    }
    list
}

fn constant(text: &str) -> ConstValue {
    match text {
        "None" => ConstValue::None,
        "True" => ConstValue::Bool(true),
        "False" => ConstValue::Bool(false),
        _ if text.starts_with('"') => ConstValue::Str(text.trim_matches('"').to_string()),
        _ if text.starts_with('(') => ConstValue::Tuple(
            text.trim_matches(['(', ')']).split(',').filter(|t| !t.trim().is_empty()).map(|t| constant(t.trim())).collect(),
        ),
        _ => match (text.parse(), text.parse(), DType::parse(text)) {
            (Ok(int), _, _) => ConstValue::Int(int),
            (_, Ok(float), _) => ConstValue::Float(float),
            (_, _, Some(dtype)) => ConstValue::DType(dtype),
            _ => panic!("`{text}` is no constant"),
        },
    }
}

fn arg_type(text: &str) -> ArgType {
    let dtype = |name: &str| DType::parse(name).unwrap_or_else(|| panic!("`{name}` is no dtype"));
    if let Some(list) = text.strip_prefix("list ") {
        let (name, rank) = list.trim_end_matches(']').split_once('[').unwrap();
        return ArgType::List { dtype: dtype(name), rank: rank.parse().unwrap(), index: IndexType::I32 };
    }
    let Some((name, dims)) = text.trim_end_matches(']').split_once('[') else { return ArgType::Scalar(dtype(text)) };
    let dims: Vec<&str> = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty()).collect();
    let mut array = ArgType::array(dtype(name), dims.len());
    if let ArgType::Array { shape, .. } = &mut array {
        for (extent, dim) in shape.iter_mut().zip(&dims) {
            *extent = dim.parse().map_or(Extent::Dynamic, Extent::Static);
        }
    }
    array
}

/// True when what happened is what was expected; a column of zero matches any.
pub(crate) fn matches(expected: &[Expectation], found: &[Expectation]) -> bool {
    expected.len() == found.len()
        && expected
            .iter()
            .zip(found)
            .all(|(e, f)| e.line == f.line && e.what == f.what && (e.column == 0 || e.column == f.column))
}
