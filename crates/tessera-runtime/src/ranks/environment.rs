//! Which rank this process is, as launchers say it in the environment.
//!
//! | launcher | rank, ranks | on this host | rank 0's address |
//! |---|---|---|---|
//! | torchrun | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | `MASTER_ADDR`, `MASTER_PORT` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK`, `..._SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `..._LOCAL_SIZE` | the same |
//! | MPICH, PMI | `PMI_RANK`, `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` | the same |
//! | Slurm | `SLURM_PROCID`, `SLURM_NTASKS` | `SLURM_LOCALID` | the same, else the first host of `SLURM_STEP_NODELIST` and a port by `SLURM_JOB_ID` |
//!
//! `TESSERA_RANKS_PORT` is a port of its own, for where somebody else listens on `MASTER_PORT`. torchrun's agent does: there
//! the port after it is taken.
//!
//! Launchers that stand in each other (torchrun started by Slurm) are told apart; otherwise two that say different things are an
//! error, as is half of what one would say.

use tessera_driver::DriverError;

use crate::device::Device;
use crate::ranks::error::RendezvousError;

/// Which rank a process is and where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// This rank.
    pub rank: usize,
    /// How many ranks there are.
    pub ranks: usize,
    /// Its number on its host: which device it takes. 0 where the launcher does not say.
    pub local_rank: usize,
    /// The host of rank 0.
    pub address: String,
    /// The port on which rank 0 listens.
    pub port: u16,
    /// Who said so.
    pub launcher: &'static str,
}

/// The variables of one launcher.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    ranks: &'static str,
    local_rank: &'static str,
    local_ranks: Option<&'static str>,
}

const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        ranks: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_ranks: Some("LOCAL_WORLD_SIZE"),
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_ranks: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    Launcher {
        name: "PMI",
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_ranks: Some("MPI_LOCALNRANKS"),
    },
    Launcher { name: "Slurm", rank: "SLURM_PROCID", ranks: "SLURM_NTASKS", local_rank: "SLURM_LOCALID", local_ranks: None },
];

/// What one launcher says.
struct Said {
    launcher: &'static Launcher,
    rank: usize,
    ranks: usize,
    local_rank: Option<usize>,
}

/// More ranks than any machine has are a mistake.
const MOST_RANKS: usize = 1 << 20;

impl Placement {
    /// Reads what launchers set; `None` where none has. Empty values count as unset.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Placement>, RendezvousError> {
        let get = |name: &str| lookup(name).map(|value| value.trim().to_string()).filter(|value| !value.is_empty());
        let mut said = Vec::new();
        for launcher in &LAUNCHERS {
            said.extend(launcher.read(&get)?);
        }
        // Who was started by torchrun may have variables of what started torchrun.
        if get("TORCHELASTIC_RUN_ID").is_some() && said.first().is_some_and(|first| first.launcher.name == "torchrun") {
            said.truncate(1);
        }
        let Some(first) = said.first() else { return Ok(None) };
        if let Some(other) = said.iter().find(|other| (other.rank, other.ranks) != (first.rank, first.ranks)) {
            return environment(format!(
                "`{}` and `{}` say rank {} of {}, but `{}` and `{}` say rank {} of {}\nhelp: unset those of the launcher that is not meant",
                first.launcher.rank,
                first.launcher.ranks,
                first.rank,
                first.ranks,
                other.launcher.rank,
                other.launcher.ranks,
                other.rank,
                other.ranks
            ));
        }
        let local_rank = said.iter().find_map(|said| said.local_rank).unwrap_or(0);
        let (rank, ranks, launcher) = (first.rank, first.ranks, first.launcher.name);
        let (address, port) = meeting_place(&get, ranks, launcher)?;
        Ok(Some(Placement { rank, ranks, local_rank, address, port, launcher }))
    }
}

impl Placement {
    /// The CUDA device of this rank: that of its number on the host, or the only one that its launcher lets it see.
    pub fn device(&self) -> Result<Device, DriverError> {
        let seen = tessera_cuda::driver()?.device_count()?;
        // Numbers are below `MOST_RANKS`.
        Device::cuda(if seen == 1 { 0 } else { self.local_rank as u32 })
    }
}

fn environment<T>(reason: String) -> Result<T, RendezvousError> {
    Err(RendezvousError::Environment { reason })
}

fn number(name: &str, value: &str, below: usize) -> Result<usize, RendezvousError> {
    match value.parse::<usize>() {
        Ok(number) if number < below => Ok(number),
        Ok(number) => environment(format!("`{name}` is {number}, and should be less than {below}")),
        Err(_) => environment(format!("`{name}` is `{value}`, and should be a number")),
    }
}

impl Launcher {
    fn read(&'static self, get: &impl Fn(&str) -> Option<String>) -> Result<Option<Said>, RendezvousError> {
        if self.name == "Slurm" && get("SLURM_STEP_ID").is_none() {
            // A batch script is no rank: `srun` starts those.
            return Ok(None);
        }
        let (rank, ranks) = match (get(self.rank), get(self.ranks)) {
            (None, None) => return Ok(None),
            // Of a step that was not asked for a number of tasks, Slurm sets no number.
            (Some(rank), None) if self.name == "Slurm" => (rank, "1".to_string()),
            (None, Some(_)) if self.name == "Slurm" => return Ok(None),
            (Some(rank), Some(ranks)) => (rank, ranks),
            (Some(_), None) => {
                return environment(format!("`{}` is set and `{}` is not\nhelp: set both, or none", self.rank, self.ranks));
            }
            (None, Some(_)) => {
                return environment(format!("`{}` is set and `{}` is not\nhelp: set both, or none", self.ranks, self.rank));
            }
        };
        let ranks = number(self.ranks, &ranks, MOST_RANKS)?;
        if ranks == 0 {
            return environment(format!("`{}` is 0: there is at least one rank", self.ranks));
        }
        let rank = number(self.rank, &rank, ranks)?;
        let on_host = self.local_ranks.and_then(|name| Some((name, get(name)?)));
        let on_host = on_host.map(|(name, value)| number(name, &value, ranks + 1)).transpose()?.unwrap_or(ranks);
        let local_rank = get(self.local_rank).map(|value| number(self.local_rank, &value, on_host)).transpose()?;
        Ok(Some(Said { launcher: self, rank, ranks, local_rank }))
    }
}

/// Where rank 0 listens.
fn meeting_place(get: &impl Fn(&str) -> Option<String>, ranks: usize, launcher: &str) -> Result<(String, u16), RendezvousError> {
    let port = |name: &str| match get(name).map(|value| (value.parse::<u16>(), value)) {
        None => Ok(None),
        Some((Ok(port), _)) if port > 0 => Ok(Some(port)),
        Some((_, value)) => environment(format!("`{name}` is `{value}`, and should be a port from 1 to 65535")),
    };
    let own = port("TESSERA_RANKS_PORT")?;
    let agent = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let master = match port("MASTER_PORT")? {
        Some(u16::MAX) if agent && own.is_none() => {
            return environment("no port follows `MASTER_PORT`\nhelp: set `TESSERA_RANKS_PORT`".to_string());
        }
        master => master.map(|port| if agent { port.saturating_add(1) } else { port }),
    };
    let slurm = || -> Result<Option<u16>, RendezvousError> {
        let job = get("SLURM_JOB_ID").filter(|_| launcher == "Slurm");
        Ok(job.map(|job| number("SLURM_JOB_ID", &job, usize::MAX)).transpose()?.map(|job| 20_000 + (job % 20_000) as u16))
    };
    let host =
        get("MASTER_ADDR").or_else(|| get("SLURM_STEP_NODELIST").filter(|_| launcher == "Slurm").map(|list| first_host(&list)));
    let chosen = match own.or(master) {
        Some(port) => Some(port),
        None => slurm()?,
    };
    match (host, chosen) {
        (Some(host), Some(port)) => Ok((host, port)),
        (None, Some(port)) if ranks == 1 => Ok(("127.0.0.1".to_string(), port)),
        // A rank alone meets nobody: any port does.
        (host, None) if ranks == 1 => Ok((host.unwrap_or_else(|| "127.0.0.1".to_string()), 0)),
        (host, _) => {
            let missing = if host.is_none() { "MASTER_ADDR" } else { "MASTER_PORT" };
            environment(format!(
                "{launcher} says that there are {ranks} ranks, and not where they meet\nhelp: set `{missing}`: the {} of rank 0, on every rank the same",
                if host.is_none() { "host" } else { "port" }
            ))
        }
    }
}

/// The first host of a list as Slurm writes it: `node[03-05,9],other` begins with `node03`.
fn first_host(list: &str) -> String {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    match rest.strip_prefix('[') {
        None => name.to_string(),
        Some(inside) => {
            let number: String = inside.chars().take_while(char::is_ascii_digit).collect();
            let after = inside.split_once(']').map_or("", |(_, after)| after);
            let suffix = &after[..after.find([',', '[']).unwrap_or(after.len())];
            format!("{name}{number}{suffix}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Placement>, String> {
        let lookup = |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_string());
        Placement::from_lookup(lookup).map_err(|error| error.to_string())
    }

    fn place(variables: &[(&str, &str)]) -> (usize, usize, usize, String, &'static str) {
        let placement = read(variables).unwrap().unwrap();
        let at = format!("{}:{}", placement.address, placement.port);
        (placement.rank, placement.ranks, placement.local_rank, at, placement.launcher)
    }

    #[test]
    fn each_launcher_is_understood() {
        assert_eq!(read(&[("PATH", "/bin"), ("RANK", "")]), Ok(None));
        let meet = [("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];
        let torchrun = [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4"), meet[0], meet[1]];
        assert_eq!(place(&torchrun), (5, 8, 1, "10.0.0.1:29500".to_string(), "torchrun"));
        let agent = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(place(&agent).3, "10.0.0.1:29501");
        let own = [&agent[..], &[("TESSERA_RANKS_PORT", "4000")]].concat();
        assert_eq!(place(&own).3, "10.0.0.1:4000");
        let mpi =
            [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1"), meet[0], meet[1]];
        assert_eq!(place(&mpi), (1, 2, 1, "10.0.0.1:29500".to_string(), "Open MPI"));
        let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), meet[0], meet[1]];
        assert_eq!(place(&pmi), (0, 2, 0, "10.0.0.1:29500".to_string(), "PMI"));
        let slurm = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_JOB_ID", "123456"),
            ("SLURM_STEP_NODELIST", "gpu[07-08,11]-ib,login"),
        ];
        assert_eq!(place(&slurm), (3, 4, 1, "gpu07-ib:23456".to_string(), "Slurm"));
        assert_eq!(read(&slurm[1..]), Ok(None), "a batch script is no rank");
        let nested = [&torchrun[..], &slurm[..], &[("TORCHELASTIC_RUN_ID", "none")]].concat();
        assert_eq!(place(&nested).0, 5);
    }

    #[test]
    fn contradictions_and_halves_are_errors() {
        let wrong = |variables: &[(&str, &str)], text: &str| {
            let error = read(variables).unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        let both = [
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "2"),
            ("MASTER_ADDR", "h"),
            ("MASTER_PORT", "1"),
        ];
        wrong(&both, "`RANK` and `WORLD_SIZE` say rank 1 of 2, but `PMI_RANK` and `PMI_SIZE` say rank 0 of 2");
        wrong(&[("RANK", "1")], "`RANK` is set and `WORLD_SIZE` is not");
        wrong(&[("WORLD_SIZE", "2")], "`WORLD_SIZE` is set and `RANK` is not");
        wrong(&[("RANK", "2"), ("WORLD_SIZE", "2")], "`RANK` is 2, and should be less than 2");
        wrong(&[("RANK", "-1"), ("WORLD_SIZE", "2")], "`RANK` is `-1`, and should be a number");
        wrong(&[("RANK", "0"), ("WORLD_SIZE", "0")], "there is at least one rank");
        wrong(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")], "`LOCAL_RANK` is 2");
        wrong(&[("RANK", "0"), ("WORLD_SIZE", "2")], "set `MASTER_ADDR`");
        wrong(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h")], "set `MASTER_PORT`");
        wrong(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "70000")], "a port from 1 to 65535");
    }

    #[test]
    fn the_first_host_of_a_list() {
        for (list, first) in [("a", "a"), ("a,b", "a"), ("n[1-4]", "n1"), ("n[001,3],m", "n001"), ("n[12-13].x", "n12.x")] {
            assert_eq!(first_host(list), first);
        }
    }
}
