//! The cases of the suite, and the teams that do them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process::Command;
use std::rc::Rc;

use tessera_runtime::ranks::{Communicator, Meeting};
use tessera_types::DType;

use super::ask::{Ask, Offer};
use super::kind::{Collective, Form};
use super::lines::Lines;
use super::subject::{Asked, Exchanged};
use super::team::{PATIENCE, Team};
use crate::case::{CaseKey, Fault, Metric, Size, Subject, Work};
use crate::ceiling::{Ceilings, ProbeOptions};
use crate::environment::{Accelerator, Environment};
use crate::status::Status;
use crate::suite::{CaseSpec, Suite};

/// Which cases are taken.
#[derive(Clone, Debug)]
pub struct CollectiveSelection {
    /// What is done.
    pub collectives: Vec<Collective>,
    /// In which types.
    pub dtypes: Vec<DType>,
    /// Messages, in bytes.
    pub bytes: Vec<u64>,
    /// Among how many ranks.
    pub ranks: usize,
}

impl CollectiveSelection {
    /// Refuses what no ranks could do.
    ///
    /// # Errors
    /// One rank alone, and messages that do not divide.
    pub fn check(&self) -> Result<(), CollectiveError> {
        if self.ranks < 2 {
            return Err(CollectiveError::Ranks(self.ranks));
        }
        let least = 16 * self.ranks;
        match self.bytes.iter().find(|&&bytes| bytes < least as u64) {
            Some(&bytes) => Err(CollectiveError::Small { bytes, ranks: self.ranks, least }),
            None => Ok(()),
        }
    }
}

/// Why a suite cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// There is nothing to exchange.
    #[error("`--ranks {0}`: there is nobody to exchange with\nhelp: write `--ranks 2` or more")]
    Ranks(usize),
    /// The suite does not have the type.
    #[error("`{0}` is no precision of the collectives\nhelp: they have fp32, fp16 and bf16")]
    Precision(String),
    /// Two ways of one name.
    #[error(
        "`{0}` is named twice, and rows of the two could not be told apart\nhelp: name each way (`--over`) and each baseline once"
    )]
    Twice(String),
    /// A message that does not divide among the ranks.
    #[error("{bytes} bytes do not divide among {ranks} ranks in parts of 16 bytes\nhelp: write {least} bytes or more")]
    Small {
        /// The message.
        bytes: u64,
        /// The ranks.
        ranks: usize,
        /// The least message.
        least: usize,
    },
    /// Ranks that did not start, or have nothing to do.
    #[error("`{name}`: {why}")]
    Team {
        /// Whose ranks.
        name: String,
        /// What is in the way.
        why: String,
    },
}

impl CollectiveError {
    /// Refuses a name that comes twice among those of ways.
    ///
    /// # Errors
    /// [`CollectiveError::Twice`].
    pub fn refuse_twice<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<(), CollectiveError> {
        let mut known = BTreeSet::new();
        match names.find(|name| !known.insert(*name)) {
            Some(name) => Err(CollectiveError::Twice(name.to_string())),
            None => Ok(()),
        }
    }
}

/// A way of exchanging: a name, and how its ranks are started.
pub struct Way {
    name: String,
    start: Box<dyn FnOnce() -> Result<Box<dyn Team>, String>>,
}

impl Way {
    /// Any team.
    pub fn new(name: impl Into<String>, start: impl FnOnce() -> Result<Box<dyn Team>, String> + 'static) -> Way {
        Way { name: name.into(), start: Box::new(start) }
    }

    /// Threads of this process that exchange through its memory.
    pub fn threads(ranks: usize) -> Way {
        Way::new("threads", move || {
            let meeting = Meeting::new(ranks).with_limit(PATIENCE);
            let make = |rank| {
                let end = meeting.rank(rank);
                Box::new(move || Ok(Box::new(end) as Box<dyn Communicator>)) as super::lines::Make
            };
            Ok(Box::new(Lines::threads("threads", (0..ranks).map(make).collect())))
        })
    }

    /// Threads of this process, each with a communicator that it makes there: a GPU a rank.
    pub fn devices(
        name: &str,
        ranks: usize,
        make: impl Fn(usize) -> Result<Box<dyn Communicator>, String> + Send + Clone + 'static,
    ) -> Way {
        let own = name.to_string();
        Way::new(name, move || {
            let rank = |rank| {
                let make = make.clone();
                Box::new(move || make(rank)) as super::lines::Make
            };
            Ok(Box::new(Lines::threads(&own, (0..ranks).map(rank).collect())))
        })
    }

    /// Processes of a command, one a rank, which find each other by torchrun's variables on this host.
    pub fn processes(name: &str, ranks: usize, command: impl Fn() -> Command + 'static) -> Way {
        let own = name.to_string();
        Way::new(name, move || {
            let port = free_port().map_err(|error| format!("no port on this host: {error}"))?;
            let of_rank = |rank: usize| {
                let mut command = command();
                let variables = [
                    ("RANK", rank.to_string()),
                    ("LOCAL_RANK", rank.to_string()),
                    ("WORLD_SIZE", ranks.to_string()),
                    ("LOCAL_WORLD_SIZE", ranks.to_string()),
                    ("MASTER_ADDR", "127.0.0.1".to_string()),
                    ("MASTER_PORT", port.to_string()),
                    // Whatever else started this process says nothing of these ranks.
                    ("TORCHELASTIC_RUN_ID", "tessera".to_string()),
                ];
                command.envs(variables).env_remove("TESSERA_RANKS_PORT").env_remove("TORCHELASTIC_USE_AGENT_STORE");
                command
            };
            Ok(Box::new(Lines::processes(&own, (0..ranks).map(of_rank).collect())?))
        })
    }
}

/// A port that nobody listens on now.
fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// An implementation of the suite: a team, and which of its ways.
struct Known {
    /// In results.
    name: String,
    offer: Offer,
    team: Rc<RefCell<Box<dyn Team>>>,
}

/// Collectives as a suite.
pub struct CollectiveSuite {
    cases: Vec<CaseSpec>,
    forms: Vec<(String, Form)>,
    known: Vec<Known>,
    lost: Rc<Cell<bool>>,
    prepared: Cell<u64>,
    graph: bool,
    accelerator: Option<Accelerator>,
    available: Option<u64>,
}

impl CollectiveSuite {
    /// Starts teams, the product's first, and lists the cases that they do.
    ///
    /// # Errors
    /// Where the selection makes no sense, two ways have one name, or a team does not start or does nothing of what was selected.
    pub fn select(selection: &CollectiveSelection, ways: Vec<Way>) -> Result<CollectiveSuite, CollectiveError> {
        selection.check()?;
        CollectiveError::refuse_twice(ways.iter().map(|way| way.name.as_str()))?;
        let mut known: Vec<Known> = Vec::new();
        for Way { name, start } in ways {
            let failed = |why: String| CollectiveError::Team { name: name.clone(), why };
            let mut team = start().map_err(failed)?;
            let answers = team.ask(&Ask::Describe).map_err(|fault| failed(fault.message))?;
            if let Some(why) = answers.iter().find_map(|answer| answer.error.clone()) {
                return Err(failed(why));
            }
            let first = answers.into_iter().next().ok_or_else(|| failed("no rank answered".to_string()))?;
            let offers = first.offers;
            let useful = |offer: &Offer| selection.collectives.iter().any(|own| offer.collectives.contains(own));
            if !offers.iter().any(useful) {
                return Err(failed("it does none of the collectives that were asked for".to_string()));
            }
            let team = Rc::new(RefCell::new(team));
            known.extend(offers.into_iter().map(|offer| {
                let separator = if offer.name.is_empty() { "" } else { " " };
                Known { name: format!("{name}{separator}{}", offer.name), offer, team: Rc::clone(&team) }
            }));
        }
        let mut suite = CollectiveSuite {
            cases: Vec::new(),
            forms: Vec::new(),
            known,
            lost: Rc::default(),
            prepared: Cell::new(0),
            graph: false,
            accelerator: None,
            available: None,
        };
        for &collective in &selection.collectives {
            for &dtype in &selection.dtypes {
                for &bytes in &selection.bytes {
                    let form = Form::of_bytes(collective, selection.ranks, bytes, dtype);
                    form.into_iter().for_each(|form| suite.add(form));
                }
            }
        }
        Ok(suite)
    }

    /// The device of each rank, and how much memory is left on the one with the least. Samples are graphs of launches there, if that is wanted.
    #[must_use]
    pub fn on_devices(mut self, accelerator: Accelerator, available: u64, graph: bool) -> CollectiveSuite {
        // Each rank has memory of its own.
        for (case, (_, form)) in self.cases.iter_mut().zip(&self.forms) {
            case.work.tensor_bytes /= form.ranks as u64;
        }
        CollectiveSuite { accelerator: Some(accelerator), available: Some(available), graph, ..self }
    }

    fn add(&mut self, form: Form) {
        let Form { collective, ranks, dtype, .. } = form;
        let offering = self.known.iter().filter(|known| known.offer.collectives.contains(&collective));
        let implementations: Vec<String> = offering.map(|known| known.name.clone()).collect();
        let key = CaseKey {
            operator: collective.name().to_string(),
            size: Size::new([("bytes", form.bytes() as u64), ("ranks", ranks as u64)]),
            precision: tessera_types::policy_name(dtype).to_string(),
            variant: String::new(),
            distribution: "uniform".to_string(),
        };
        if implementations.is_empty() || self.forms.iter().any(|(id, _)| *id == key.id()) {
            return;
        }
        let element = form.bytes() / form.count;
        let held = ((form.given() + form.got()) * element) as u64;
        let work = Work {
            read_bytes: form.bytes() as u64,
            write_bytes: 0,
            flops: 0,
            class: None,
            metric: Metric::Bandwidth,
            tensor_bytes: held * ranks as u64,
            formula: "the message once: algorithm bandwidth; what a rank's link carries at least is the bus bandwidth".into(),
        };
        self.forms.push((key.id(), form));
        self.cases.push(CaseSpec { key, work, implementations });
    }
}

impl Suite for CollectiveSuite {
    fn name(&self) -> &str {
        "collectives"
    }

    fn cases(&self) -> &[CaseSpec] {
        &self.cases
    }

    fn build(&self, case: &CaseSpec, implementation: &str) -> Result<Box<dyn Subject>, Fault> {
        let known = self.known.iter().find(|known| known.name == implementation);
        let form = self.forms.iter().find(|(id, _)| *id == case.key.id()).map(|(_, form)| *form);
        let (Some(known), Some(form)) = (known, form) else {
            return Err(Fault::new(Status::Unsupported, format!("there is no implementation `{implementation}`")));
        };
        self.prepared.set(self.prepared.get() + 1);
        let asked = Asked {
            team: Rc::clone(&known.team),
            lost: Rc::clone(&self.lost),
            case: self.prepared.get(),
            implementation: known.offer.name.clone(),
            graph: self.graph,
        };
        Ok(Box::new(Exchanged::prepare(asked, form)?))
    }

    fn accelerator(&self) -> Option<Accelerator> {
        self.accelerator.clone()
    }

    /// None were measured: what links between ranks carry is what the suite is there to find out.
    fn ceilings(&self, _probe: ProbeOptions) -> Ceilings {
        Ceilings::default()
    }

    fn available_bytes(&self) -> Option<u64> {
        self.available.or_else(Environment::available_bytes)
    }

    fn group_bytes(&self) -> u64 {
        if self.accelerator.is_some() { 4 << 30 } else { 32 << 20 }
    }

    fn is_lost(&self) -> bool {
        self.lost.get()
    }
}
