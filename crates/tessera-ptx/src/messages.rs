//! What `ptxas` says, as data: registers, spills, stack and shared memory of each kernel, warnings and errors with their
//! PTX lines and, through `.loc`, their source lines; and whether it serialised wgmma.

use crate::model::Loc;

/// How bad a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Information.
    Info,
    /// A warning.
    Warning,
    /// An error: nothing was assembled.
    Error,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// How bad it is.
    pub severity: Severity,
    /// The line of the PTX text, where the message names one.
    pub line: Option<u32>,
    /// The assembler's code, such as `C7508`, where it gives one.
    pub code: Option<String>,
    /// The text.
    pub text: String,
}

impl Message {
    /// The place in the source language that the message's line of `ptx` came from: the last `.loc` before it in the same
    /// function.
    pub fn source(&self, ptx: &str) -> Option<Loc> {
        let before: Vec<&str> = ptx.lines().take(self.line? as usize).map(str::trim).collect();
        let function = before.iter().rposition(|line| line.contains(".entry ") || line.contains(".func "))?;
        before[function..].iter().rev().find_map(|line| {
            let mut numbers = line.strip_prefix(".loc")?.split_whitespace().map(|word| word.parse().ok());
            Some(Loc { file: numbers.next()??, line: numbers.next()??, column: numbers.next().flatten().unwrap_or(0) })
        })
    }
}

/// What one kernel or function uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionUsage {
    /// Its name.
    pub name: String,
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of stack frame.
    pub stack_bytes: u32,
    /// Bytes stored by spills.
    pub spill_stores: u32,
    /// Bytes loaded by spills.
    pub spill_loads: u32,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Barriers used.
    pub barriers: u32,
}

/// Everything that one run of the assembler said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblyReport {
    /// One entry a kernel or function.
    pub functions: Vec<FunctionUsage>,
    /// Warnings and errors.
    pub messages: Vec<Message>,
}

impl AssemblyReport {
    /// Reads the assembler's output.
    pub fn read(output: &str) -> AssemblyReport {
        let mut report = AssemblyReport::default();
        for line in output.lines() {
            report.line(line.trim());
        }
        report
    }

    /// Whether wgmma was serialised: the matrix unit waits after every instruction.
    pub fn serialises_wgmma(&self) -> bool {
        self.messages.iter().any(|message| {
            let text = message.text.to_ascii_lowercase();
            text.contains("wgmma") && (text.contains("serializ") || text.contains("serialis"))
        })
    }

    /// Whether `setmaxnreg` was ignored.
    pub fn ignores_setmaxnreg(&self) -> bool {
        self.messages.iter().any(|message| {
            message.code.as_deref() == Some("C7508") || (message.text.contains("setmaxnreg") && message.text.contains("ignor"))
        })
    }

    /// Bytes spilled by all functions, stores and loads.
    pub fn spilled_bytes(&self) -> u32 {
        self.functions.iter().map(|found| found.spill_stores + found.spill_loads).sum()
    }

    fn line(&mut self, line: &str) {
        if let Some(name) = between(line, "Function properties for ", "") {
            self.functions.push(FunctionUsage { name: name.trim().to_owned(), ..FunctionUsage::default() });
            return;
        }
        if let Some(stack) = number_before(line, " bytes stack frame") {
            if let Some(current) = self.functions.last_mut() {
                current.stack_bytes = stack;
                current.spill_stores = number_before(line, " bytes spill stores").unwrap_or(0);
                current.spill_loads = number_before(line, " bytes spill loads").unwrap_or(0);
            }
            return;
        }
        if let Some(registers) = number_before(line, " registers").filter(|_| line.contains("Used ")) {
            if let Some(current) = self.functions.last_mut() {
                current.registers = registers;
                current.shared_bytes = number_before(line, " bytes smem").unwrap_or(0);
                current.barriers = number_before(line, " barriers").unwrap_or(0);
            }
            return;
        }
        self.message(line);
    }

    fn message(&mut self, line: &str) {
        let severity = if line.contains("error") || line.contains("fatal") {
            Severity::Error
        } else if line.contains("warning") || line.contains("Potential Performance Loss") {
            Severity::Warning
        } else {
            return;
        };
        let rest = line.split_once(" line ").map(|(_, rest)| rest);
        let digits = rest.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
        let code = between(line, "(C", ")")
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .map(|digits| format!("C{digits}"));
        let text = ["error", "warning", "fatal", "info"]
            .iter()
            .find_map(|word| line.split_once(word).map(|(_, rest)| rest))
            .map_or(line, |rest| rest.split_once(':').map_or(rest, |(_, text)| text));
        self.messages.push(Message {
            severity,
            line: digits.and_then(|digits| digits.parse().ok()),
            code,
            text: text.trim().to_owned(),
        });
    }
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(before)?;
    if after.is_empty() { Some(rest) } else { rest.split_once(after).map(|(inside, _)| inside) }
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_and_warnings_are_read() {
        let output = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in function 'gemm'
ptxas info    : Function properties for gemm
    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 1024 bytes smem
ptxas warning : (C7508) setmaxnreg ignored; unable to determine register count at entry
";
        let report = AssemblyReport::read(output);
        let usage = &report.functions[0];
        assert_eq!((usage.name.as_str(), usage.registers, usage.stack_bytes), ("gemm", 168, 16));
        assert_eq!((usage.spill_stores, usage.spill_loads, usage.barriers), (24, 32, 2));
        assert_eq!((usage.shared_bytes, report.spilled_bytes()), (1024, 56));
        assert!(report.serialises_wgmma() && report.ignores_setmaxnreg());
        assert_eq!(report.messages[0].code.as_deref(), Some("C7510"));
    }

    #[test]
    fn a_line_of_ptx_leads_to_its_source() {
        let ptx = ".entry a()\n{\n  .loc 1 7 3\n  ret;\n}\n.entry b()\n{\n  bad;\n  .loc 1 9 2\n  bad;\n}\n";
        let source = |line| Message { severity: Severity::Error, line, code: None, text: String::new() }.source(ptx);
        assert_eq!(source(Some(4)), Some(Loc { file: 1, line: 7, column: 3 }));
        assert_eq!(source(Some(8)), None, "the place of another function");
        assert_eq!(source(Some(10)), Some(Loc { file: 1, line: 9, column: 2 }));
        assert_eq!(source(None), None);
    }

    #[test]
    fn errors_carry_their_line() {
        let report = AssemblyReport::read(
            "ptxas /x/a.ptx, line 12; error   : Arguments mismatch for instruction 'add'\n\
             ptxas fatal   : Ptx assembly aborted due to errors\n",
        );
        assert_eq!(report.messages[0].line, Some(12));
        assert_eq!(report.messages[0].text, "Arguments mismatch for instruction 'add'");
        assert_eq!(report.messages[0].severity, Severity::Error);
        assert_eq!(report.messages.len(), 2);
    }
}
