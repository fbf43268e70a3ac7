//! The process exit codes of the command line, as data.

use std::collections::BTreeMap;

use crate::record::EndRecord;
use crate::sample::Mode;
use crate::status::Status;

/// What a command ends with. The numbers are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Everything as asked.
    Ok = 0,
    /// Something became slower.
    Regression = 1,
    /// A wrong result.
    Incorrect = 2,
    /// A measurement that cannot be used.
    Invalid = 3,
    /// The machine or a file.
    Environment = 4,
    /// The command line, or a kernel that does not compile.
    Usage = 5,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What a bench run ends with: the worst of its rows. An early stop counts only in `ci` and `publish`, except
    /// before anything was checked.
    pub fn of_run(end: &EndRecord, mode: Mode) -> Exit {
        let strict = matches!(mode, Mode::Ci | Mode::Publish);
        let has = |test: &dyn Fn(Status) -> bool| any(&end.by_status, test);
        if has(&Status::is_wrong) {
            Exit::Incorrect
        } else if has(&|s| s == Status::CompileError) {
            Exit::Usage
        } else if has(&|s| matches!(s, Status::RuntimeError | Status::Oom | Status::Timeout)) {
            Exit::Environment
        } else if has(&|s| matches!(s, Status::OverPeak | Status::HarnessError | Status::Throttled | Status::NoisyHost))
            || end.planned > 0 && end.by_status.iter().all(|(&status, &n)| n == 0 || status.is_left_out())
            || strict && (end.run < end.planned || has(&|s| s == Status::NotConverged))
        {
            Exit::Invalid
        } else {
            Exit::Ok
        }
    }
}

fn any(by_status: &BTreeMap<Status, usize>, test: &dyn Fn(Status) -> bool) -> bool {
    by_status.iter().any(|(&status, &n)| n > 0 && test(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_row_decides() {
        let end = |statuses: &[Status], run: usize| EndRecord {
            planned: 2,
            run,
            by_status: statuses.iter().map(|&s| (s, 1)).collect(),
            reason: None,
        };
        let of = |statuses: &[Status], mode| Exit::of_run(&end(statuses, 2), mode);
        assert_eq!(of(&[Status::Ok, Status::Skipped], Mode::Ci), Exit::Ok);
        assert_eq!(of(&[Status::NotConverged], Mode::Quick), Exit::Ok);
        // Nothing was checked.
        assert_eq!(of(&[], Mode::Quick), Exit::Invalid);
        assert_eq!(of(&[Status::Skipped, Status::Unsupported], Mode::Quick), Exit::Invalid);
        assert_eq!(of(&[Status::NotConverged], Mode::Ci), Exit::Invalid);
        assert_eq!(of(&[Status::OverPeak], Mode::Quick), Exit::Invalid);
        assert_eq!(of(&[Status::NotWritten, Status::OverPeak], Mode::Quick), Exit::Incorrect);
        assert_eq!(Exit::of_run(&end(&[Status::Ok], 1), Mode::Quick), Exit::Ok);
        assert_eq!(Exit::of_run(&end(&[Status::Ok], 1), Mode::Publish), Exit::Invalid);
    }
}
