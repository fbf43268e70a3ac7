//! How a launch is executed and what is looked for.

use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;
use tessera_driver::Dim3;
use tessera_types::TimeLimit;

use crate::finding::Class;
use crate::suppress::Suppressions;

/// Which interleaving is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Warps take turns, asynchronous operations complete where they start.
    #[default]
    Eager,
    /// Asynchronous operations complete only when a wait asks for them or nothing else can go on.
    Lazy,
    /// The seed picks warps, short turns, and when copies complete.
    Random,
    /// Every interleaving that can differ, one execution each, as far as [`LaunchOptions::most_schedules`] allows: for small
    /// kernels.
    Systematic,
}

impl Schedule {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Schedule::Eager => "eager",
            Schedule::Lazy => "lazy",
            Schedule::Random => "random",
            Schedule::Systematic => "systematic",
        }
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        match text {
            "eager" => Ok(Schedule::Eager),
            "lazy" => Ok(Schedule::Lazy),
            "random" => Ok(Schedule::Random),
            "systematic" => Ok(Schedule::Systematic),
            other => Err(format!("`{other}` is no schedule: `eager`, `lazy`, `random` or `systematic`")),
        }
    }
}

/// Which mistakes are looked for beyond those that stop every launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sanitize {
    /// Conflicting accesses that nothing orders, and missing proxy fences.
    pub races: bool,
    /// Registers and memory that are read before they were written. Memory that was there during a launch without this
    /// check counts as written.
    pub uninitialized: bool,
    /// Aligned barriers to which lanes of a warp come apart.
    pub barriers: bool,
    /// Registers and shared memory that a matrix product under way still uses.
    pub in_flight: bool,
    /// Bank conflicts of shared memory and accesses to global memory that do not lie together: advice, not mistakes.
    pub advice: bool,
}

impl Sanitize {
    /// Nothing beyond what stops every launch.
    pub const NONE: Sanitize = Sanitize { races: false, uninitialized: false, barriers: false, in_flight: false, advice: false };
    /// Every mistake; no advice.
    pub const ALL: Sanitize = Sanitize { races: true, uninitialized: true, barriers: true, in_flight: true, advice: false };

    /// Whether mistakes are looked for.
    pub(crate) fn any(self) -> bool {
        Sanitize { advice: false, ..self } != Sanitize::NONE
    }
}

impl FromStr for Sanitize {
    type Err = String;

    /// `race,init,barrier,flight,advice`; `all` is every mistake, and `bounds` what is looked for anyway.
    fn from_str(text: &str) -> Result<Sanitize, String> {
        text.split(',').try_fold(Sanitize::NONE, |found, check| {
            Ok(match check {
                "all" => Sanitize { advice: found.advice, ..Sanitize::ALL },
                "race" => Sanitize { races: true, ..found },
                "init" => Sanitize { uninitialized: true, ..found },
                "barrier" => Sanitize { barriers: true, ..found },
                "flight" => Sanitize { in_flight: true, ..found },
                "advice" => Sanitize { advice: true, ..found },
                "bounds" => found,
                other => {
                    return Err(format!(
                        "`{other}` is no check: `all`, or any of `bounds`, `race`, `init`, `barrier`, `flight`, `advice`"
                    ));
                }
            })
        })
    }
}

/// How one launch is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Blocks of a cluster, where the kernel does not fix them itself.
    pub cluster: Option<Dim3>,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Which interleaving.
    pub schedule: Schedule,
    /// Fixes every choice of [`Schedule::Random`].
    pub seed: u64,
    /// What is looked for.
    pub sanitize: Sanitize,
    /// Host threads; sanitizers use one. `None`: all of the machine.
    pub threads: Option<usize>,
    /// A warp whose operations are written down: the block's number in the grid and the warp's in the block.
    pub trace: Option<(u64, u32)>,
    /// Findings after which a launch is stopped.
    pub most_findings: usize,
    /// Goes on behind findings where that is meaningful, however many there are: what an access outside memory reads is
    /// undefined, what it writes is lost.
    pub keep_going: bool,
    /// The least class that makes a launch through the driver table fail; none: no finding does.
    pub fail_on: Option<Class>,
    /// Findings that are let pass.
    pub suppress: Arc<Suppressions>,
    /// Operations without any progress after which a cluster counts as stuck.
    pub patience: u64,
    /// Thread-instructions of a cluster after which it counts as stuck, whatever it does.
    pub most_instructions: u64,
    /// How long it may take, in all schedules together.
    pub limit: TimeLimit,
    /// Executions of [`Schedule::Systematic`], after which it is not complete.
    pub most_schedules: u64,
}

impl Default for LaunchOptions {
    fn default() -> LaunchOptions {
        LaunchOptions {
            cluster: None,
            shared_bytes: 0,
            schedule: Schedule::Eager,
            seed: 0,
            sanitize: Sanitize::NONE,
            threads: None,
            trace: None,
            most_findings: 20,
            keep_going: false,
            fail_on: Some(Class::Wrong),
            suppress: Arc::default(),
            patience: 100_000_000,
            most_instructions: u64::MAX,
            limit: TimeLimit::NONE,
            most_schedules: 2000,
        }
    }
}

/// The emulated machine and the defaults of its launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmuOptions {
    /// The product: a name of `tessera_types::Device`.
    pub device: String,
    /// Multiprocessors, where not as many as the product has.
    pub multiprocessors: Option<u32>,
    /// Devices of this kind behind one driver table, which can reach each other's memory.
    pub devices: u32,
    /// How launches through the driver table are executed.
    pub launch: LaunchOptions,
}

impl Default for EmuOptions {
    fn default() -> EmuOptions {
        EmuOptions { device: "h200".to_owned(), multiprocessors: None, devices: 1, launch: LaunchOptions::default() }
    }
}
