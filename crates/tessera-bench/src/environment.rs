//! The machine a session ran on, as far as it can be found out without asking for rights.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::random::Digest;

/// Facts about host and build, stored with the results and compared before two files are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's name.
    pub cpu: String,
    /// Threads that kernels use.
    pub threads: usize,
    /// Processors that the system offers to this process.
    pub processors: usize,
    /// Sizes of the caches by level, instruction caches left out: `L1 48K`, `L2 1024K`, `L3 32768K`.
    pub caches: Vec<String>,
    /// Bytes of the last-level cache; 0 when unknown.
    pub last_level_bytes: u64,
    /// Vector extensions that matter for speed.
    pub features: Vec<String>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Operating system and architecture.
    pub os: String,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The frequency governor of the first processor.
    pub governor: Option<String>,
    /// Load average of the last minute when the session began.
    pub load: Option<f64>,
    /// True under a hypervisor.
    pub virtual_machine: bool,
}

impl Environment {
    /// Looks at this machine.
    pub fn detect() -> Environment {
        let info = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            info.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_string())
        };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
        const TOLD: [&str; 7] = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "asimd"];
        let (caches, last_level_bytes) = caches();
        Environment {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            threads: rayon::current_num_threads(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            caches,
            last_level_bytes,
            features: TOLD.iter().filter(|f| has(f)).map(|f| f.to_string()).collect(),
            memory_bytes: memory("MemTotal:").unwrap_or(0),
            os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            kernel: read("/proc/sys/kernel/osrelease"),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load: read("/proc/loadavg").and_then(|l| l.split_whitespace().next()?.parse().ok()),
            virtual_machine: has("hypervisor"),
        }
    }

    /// What must be equal for two sessions' times to be comparable.
    pub fn fingerprint(&self) -> String {
        let mut digest = Digest::default();
        digest.bytes(self.cpu.as_bytes());
        digest.word(self.threads as u64);
        digest.word(self.last_level_bytes);
        self.features.iter().for_each(|f| digest.bytes(f.as_bytes()));
        digest.bytes(self.os.as_bytes());
        format!("{:016x}", digest.finish())
    }

    /// Memory that can still be taken, by the system's estimate and the control group's limit.
    pub fn available_bytes() -> Option<u64> {
        let number = |path| read(path).and_then(|text| text.parse::<u64>().ok());
        let limit = number("/sys/fs/cgroup/memory.max");
        let used = number("/sys/fs/cgroup/memory.current");
        let group = limit.zip(used).map(|(limit, used)| limit.saturating_sub(used));
        [memory("MemAvailable:"), group].into_iter().flatten().min()
    }
}

/// Facts about a device that kernels ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    /// The driver's name for it.
    pub name: String,
    /// Its own number.
    pub uuid: Option<String>,
    /// Compute capability: `9.0`.
    pub capability: String,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of second-level cache.
    pub l2_bytes: u64,
    /// The driver's version.
    pub driver: String,
    /// Highest clock of the multiprocessors.
    pub max_mhz: Option<u32>,
    /// Power limit in watts.
    pub power_limit_w: Option<f64>,
    /// How launches are timed: `isolated cold`.
    pub timing: String,
}

impl Accelerator {
    /// What must be equal for two sessions' times to be comparable.
    pub fn fingerprint(&self) -> String {
        let mut digest = Digest::default();
        for part in [&self.name, &self.capability, &self.driver, &self.timing] {
            digest.bytes(part.as_bytes());
        }
        digest.word(self.memory_bytes);
        digest.word(self.power_limit_w.unwrap_or(0.0) as u64);
        format!("{:016x}", digest.finish())
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn memory(field: &str) -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let kilobytes = text.lines().find_map(|l| l.strip_prefix(field))?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kilobytes.checked_mul(1024)
}

fn caches() -> (Vec<String>, u64) {
    let (mut list, mut last) = (Vec::new(), 0);
    for index in 0..8 {
        let of = |file: &str| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}"));
        let (Some(level), Some(kind), Some(size)) = (of("level"), of("type"), of("size")) else { break };
        if kind == "Instruction" {
            continue;
        }
        let bytes = size.strip_suffix('K').and_then(|k| k.parse::<u64>().ok()).map_or(0, |k| k * 1024);
        last = last.max(bytes);
        list.push(format!("L{level} {size}"));
    }
    (list, last)
}
