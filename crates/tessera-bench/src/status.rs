//! What can be said of a row. A row that is not `ok` has no speed-up: never 1, never 0.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($(#[$meta:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $enum { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl $enum {
            /// Every value, in declaration order.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// The name used in results files and tables.
            pub const fn name(self) -> &'static str { match self { $($enum::$variant => $name,)* } }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

names! {
    /// The outcome of one row.
    Status {
        /// Correct and measured as well as its figure is good for.
        Ok = "ok",
        /// Correct; no time was asked for.
        Checked = "checked",
        /// A result outside its bound, a wrong NaN or infinity, a changed input, a damaged guard.
        Incorrect = "incorrect",
        /// Elements that kept the poison under both patterns.
        NotWritten = "not_written",
        /// Equal inputs gave different bits although the operator says that they do not.
        Nondeterministic = "nondeterministic",
        /// Faster than the machine can be: the number is refused.
        OverPeak = "over_peak",
        /// The interval was still too wide when blocks or time ran out; the width reached is shown.
        NotConverged = "not_converged",
        /// The clock was held down by heat or by the power supply.
        Throttled = "throttled",
        /// Somebody else was using the device.
        NoisyHost = "noisy_host",
        /// The implementation does not offer this case.
        Unsupported = "unsupported",
        /// Memory ran out.
        Oom = "oom",
        /// The launch or the build took too long.
        Timeout = "timeout",
        /// The kernel did not compile.
        CompileError = "compile_error",
        /// The launch failed.
        RuntimeError = "runtime_error",
        /// The harness could not trust itself.
        HarnessError = "harness_error",
        /// Not attempted, with the reason.
        Skipped = "skipped",
    }
}

names! {
    /// Something to know of a row that does not invalidate it.
    Flag {
        /// The median is below three empty launches.
        LatencyBound = "latency_bound",
        /// The tensors fit the last-level cache, so the figure is not a memory rate.
        CacheResident = "cache_resident",
        /// Samples fall into two groups.
        Bimodal = "bimodal",
        /// The time moved steadily during the measurement.
        Drift = "drift",
        /// The time moved too much to be known well, its ratio to the baseline did not: blocks took turns.
        ByRatio = "by_ratio",
        /// The errors lean to one side.
        Biased = "biased",
        /// The power limit held the clock down.
        PowerCapped = "power_capped",
        /// A measured ceiling was beaten and measured again.
        ProbeStale = "probe_stale",
    }
}

impl Status {
    /// True when the result is wrong, whatever its speed.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Status::Incorrect | Status::NotWritten | Status::Nondeterministic)
    }

    /// True when nothing was tried.
    pub const fn is_left_out(self) -> bool {
        matches!(self, Status::Unsupported | Status::Skipped)
    }

    /// True when a time was measured whose interval may be looked at.
    pub const fn has_time(self) -> bool {
        matches!(self, Status::Ok | Status::NotConverged | Status::Throttled | Status::NoisyHost)
    }
}
