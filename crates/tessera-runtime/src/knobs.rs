//! Every environment variable that changes what Tessera does, in one place.
//!
//! | variable | is |
//! |---|---|
//! | `TESSERA_THREADS` | threads that run blocks on the CPU; all cores when unset |
//! | `TESSERA_CPU_LEVEL` | the most that CPU kernels use: `portable`, `avx2`, `avx2-vnni`, `avx512`, `avx512-vnni`; all there is when unset |
//! | `TESSERA_DEVICE` | the default device: `cpu`, `emu`, `cuda` or `cuda:N`; the best that works when unset |
//! | `TESSERA_PATH` | folders in which kernel files' imports are looked for, as `PATH` lists them; those of the file come first |
//! | `TESSERA_CACHE` | the folder of assembled kernels, or `off`; `tessera` in the user's cache folder when unset |
//! | `TESSERA_NCCL` | the file of NCCL's library; that of the loader or of a Python environment when unset |
//! | `TESSERA_RANKS_TIMEOUT` | seconds that a rank waits for others in a call; 600 when unset |
//! | `TESSERA_RANKS_PATIENCE` | seconds without a sign of life after which a rank is lost; 10 when unset |
//! | `TESSERA_RANKS_PORT` | the port on which rank 0 listens; `MASTER_PORT` when unset |
//!
//! Which rank a process is stands in the variables of its launcher: [`Knobs::placement`].
//! Nothing else in the libraries reads the environment, `HOME` and `XDG_CACHE_HOME` apart (colours follow `NO_COLOR`, which the command line reads).

use std::path::PathBuf;
use std::time::Duration;

use crate::device::{Device, DeviceChoice};
use crate::ranks::{Limits, Nccl, NcclError, Placement, RendezvousError, nccl_places};

/// Settings from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// `TESSERA_THREADS`.
    pub threads: Option<usize>,
    /// `TESSERA_CPU_LEVEL`.
    pub cpu_level: Option<tessera_cpu::Level>,
    /// `TESSERA_DEVICE`.
    pub device: Option<DeviceName>,
    /// `TESSERA_PATH`.
    pub path: Vec<PathBuf>,
    /// `TESSERA_CACHE`, or the user's cache folder; none when it is `off`.
    pub cache: Option<PathBuf>,
    /// `HOME`: the user's folder.
    pub home: Option<PathBuf>,
    /// `TESSERA_RANKS_TIMEOUT` and `TESSERA_RANKS_PATIENCE`.
    pub limits: Limits,
}

/// A device as the command line and the environment name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// `cpu`.
    Cpu,
    /// `emu`: the PTX emulator.
    Emu,
    /// `cuda`, `cuda:1`.
    Cuda(u32),
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}=`{value}`: expected {expected}")]
pub struct KnobError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub expected: &'static str,
}

/// A knob for listings: its variable, what it is for, and its value where set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobRow {
    /// The variable.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// Its value.
    pub value: Option<String>,
}

const THREADS: &str = "TESSERA_THREADS";
const CPU_LEVEL: &str = "TESSERA_CPU_LEVEL";
const DEVICE: &str = "TESSERA_DEVICE";
const PATH: &str = "TESSERA_PATH";
const CACHE: &str = "TESSERA_CACHE";
const NCCL: &str = "TESSERA_NCCL";
const RANKS_TIMEOUT: &str = "TESSERA_RANKS_TIMEOUT";
const RANKS_PATIENCE: &str = "TESSERA_RANKS_PATIENCE";
const RANKS_PORT: &str = "TESSERA_RANKS_PORT";

const ROWS: &[(&str, &str)] = &[
    (THREADS, "threads that run blocks on the CPU; all cores when unset"),
    (
        CPU_LEVEL,
        "the most that CPU kernels use: `portable`, `avx2`, `avx2-vnni`, `avx512`, `avx512-vnni`; all there is when unset",
    ),
    (DEVICE, "the default device: `cpu`, `emu`, `cuda` or `cuda:N`; the best that works when unset"),
    (PATH, "folders in which kernel files' imports are looked for, as `PATH` lists them; those of the file come first"),
    (CACHE, "the folder of assembled kernels, or `off`; `tessera` in the user's cache folder when unset"),
    (NCCL, "the file of NCCL's library; that of the loader or of a Python environment when unset"),
    (RANKS_TIMEOUT, "seconds that a rank waits for others in a call; 600 when unset"),
    (RANKS_PATIENCE, "seconds without a sign of life after which a rank is lost; 10 when unset"),
    (RANKS_PORT, "the port on which rank 0 listens; `MASTER_PORT` when unset"),
];

impl Knobs {
    /// Reads the environment.
    pub fn from_env() -> Result<Knobs, KnobError> {
        Knobs::from_lookup(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Which rank this process is, where a launcher says so: the variables of [`Placement::from_lookup`].
    pub fn placement() -> Result<Option<Placement>, RendezvousError> {
        Placement::from_lookup(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// NCCL, where it is found: at `TESSERA_NCCL`, in a Python environment, by the loader.
    pub fn nccl() -> Result<Nccl, NcclError> {
        Nccl::load(&nccl_places(|name| std::env::var_os(name)))
    }

    /// Reads settings from any source; empty values count as unset.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Knobs, KnobError> {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let threads = get(THREADS).map(|value| match value.parse() {
            Ok(count) if (1..=4096).contains(&count) => Ok(count),
            _ => Err(KnobError { name: THREADS, value, expected: "a number from 1 to 4096" }),
        });
        let cpu_level = get(CPU_LEVEL).map(|value| {
            let expected = "`portable`, `avx2`, `avx2-vnni`, `avx512` or `avx512-vnni`";
            tessera_cpu::Level::parse(&value).ok_or(KnobError { name: CPU_LEVEL, value, expected })
        });
        let device = get(DEVICE).map(|value| {
            DeviceName::parse(&value).ok_or(KnobError { name: DEVICE, value, expected: "`cpu`, `emu`, `cuda` or `cuda:N`" })
        });
        let path = get(PATH).map_or_else(Vec::new, |value| std::env::split_paths(&value).collect());
        let cache = match get(CACHE) {
            Some(value) if value == "off" => None,
            Some(value) => Some(PathBuf::from(value)),
            None => {
                let user = get("XDG_CACHE_HOME").map(PathBuf::from);
                user.or_else(|| Some(PathBuf::from(get("HOME")?).join(".cache"))).map(|folder| folder.join("tessera"))
            }
        };
        let home = get("HOME").map(PathBuf::from);
        let seconds = |name: &'static str, or: Duration| match get(name).map(|value| (value.parse::<f64>(), value)) {
            None => Ok(or),
            Some((Ok(seconds), _)) if (0.05..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            Some((_, value)) => Err(KnobError { name, value, expected: "seconds from 0.05 to 1000000" }),
        };
        let usual = Limits::default();
        let (call, patience) = (seconds(RANKS_TIMEOUT, usual.call)?, seconds(RANKS_PATIENCE, usual.patience)?);
        Ok(Knobs {
            limits: Limits { call, join: usual.join.min(call), patience },
            threads: threads.transpose()?,
            cpu_level: cpu_level.transpose()?,
            device: device.transpose()?,
            path,
            cache,
            home,
        })
    }

    /// Every variable with its value in the environment.
    pub fn rows() -> Vec<KnobRow> {
        ROWS.iter()
            .map(|&(name, doc)| KnobRow { name, doc, value: std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()) })
            .collect()
    }

    /// Sizes the thread pool that everything shares and limits what CPU kernels use; call it once, before any work. False when it
    /// comes too late.
    pub fn apply(&self) -> bool {
        let limited = self.cpu_level.is_none_or(tessera_cpu::Level::limit);
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().is_ok();
        self.threads.is_none_or(pool) && limited
    }

    /// The device to use where the command line names none.
    pub fn device(&self) -> Result<DeviceChoice, tessera_driver::DriverError> {
        match self.device {
            None => Ok(Device::best()),
            Some(name) => Ok(DeviceChoice { device: name.open()?, reason: format!("`{DEVICE}` asks for it") }),
        }
    }
}

impl DeviceName {
    /// Reads `cpu`, `emu`, `cuda` or `cuda:N`.
    pub fn parse(text: &str) -> Option<DeviceName> {
        match text {
            "cpu" => Some(DeviceName::Cpu),
            "emu" => Some(DeviceName::Emu),
            "cuda" => Some(DeviceName::Cuda(0)),
            _ => text.strip_prefix("cuda:")?.parse().ok().map(DeviceName::Cuda),
        }
    }

    /// Opens it.
    pub fn open(self) -> Result<Device, tessera_driver::DriverError> {
        match self {
            DeviceName::Cpu => Ok(Device::Cpu),
            DeviceName::Emu => Device::emulator(),
            DeviceName::Cuda(ordinal) => Device::cuda(ordinal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_checked() {
        let with =
            |name: &'static str, value: &'static str| Knobs::from_lookup(move |asked| (asked == name).then(|| value.to_owned()));
        assert_eq!(with(THREADS, "3").map(|knobs| knobs.threads), Ok(Some(3)));
        assert_eq!(with(THREADS, "").map(|knobs| knobs.threads), Ok(None));
        assert_eq!(with(DEVICE, "cuda:2").map(|knobs| knobs.device), Ok(Some(DeviceName::Cuda(2))));
        assert_eq!(
            with(THREADS, "many").map_err(|error| error.to_string()),
            Err("TESSERA_THREADS=`many`: expected a number from 1 to 4096".into())
        );
        assert!(with(DEVICE, "gpu").is_err());
        assert_eq!(with(RANKS_TIMEOUT, "2.5").map(|knobs| knobs.limits.call), Ok(Duration::from_millis(2500)));
        assert!(with(RANKS_PATIENCE, "0").is_err() && with(RANKS_PATIENCE, "nan").is_err());
        assert_eq!(with(CPU_LEVEL, "avx2").map(|knobs| knobs.cpu_level), Ok(Some(tessera_cpu::Level::Avx2)));
        assert!(with(CPU_LEVEL, "sse").is_err());
        let cache = |name, value| with(name, value).map(|knobs| knobs.cache);
        assert_eq!(cache(CACHE, "/c"), Ok(Some(PathBuf::from("/c"))));
        assert_eq!(cache(CACHE, "off"), Ok(None));
        assert_eq!(cache("HOME", "/h"), Ok(Some(PathBuf::from("/h/.cache/tessera"))));
    }
}
