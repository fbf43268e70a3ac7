//! Ranks that are processes and exchange over TCP: they agree with what is expected, and what goes wrong in one ends the others with
//! an error that names it, within the time that they were given.
//!
//! A test starts this program again for each rank, with the variables of torchrun; [`a_rank`] is what runs there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tessera_runtime::ranks::{Checked, Communicator, Limits, Reduction, World};
use tessera_runtime::{Knobs, Tensor};
use tessera_types::DType;

use super::calls::make_calls;

/// How long a rank lives without a sign of life in these tests, and how long a call waits.
const PATIENCE: Duration = Duration::from_millis(1500);
const CALL: Duration = Duration::from_secs(4);
/// What a machine that is busy adds to any time.
const SLACK: Duration = Duration::from_secs(20);

type Outcome = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn row(length: usize, dtype: DType) -> Tensor {
    Tensor::ones(dtype, &[length]).unwrap()
}

/// Makes the same sums as everybody.
fn sums(ranks: &mut dyn Communicator, count: usize) -> Outcome {
    let world = ranks.world();
    for _ in 0..count {
        let tensor = row(100, DType::F32);
        ranks.all_reduce_into(&world, Reduction::Sum, &tensor, &tensor).and_then(|pending| pending.wait()).map_err(text)?;
        assert_eq!(tensor.to_f64().unwrap()[7], ranks.ranks() as f64);
    }
    Ok(())
}

fn signal(name: &str) {
    let status = Command::new("kill").args([name, &std::process::id().to_string()]).status().unwrap();
    assert!(status.success());
    // The signal may arrive after the call has returned.
    std::thread::sleep(Duration::from_secs(60));
}

/// What a rank does in a case.
fn case(name: &str, world: &World) -> Outcome {
    let mut ranks = world.tcp().map_err(text)?;
    let (own, everyone) = (world.rank(), ranks.world());
    match name {
        "calls" => make_calls(&mut ranks, 7, 60),
        "thousand" => make_calls(&mut ranks, 8, 1000),
        "large" => {
            // Each way more than any buffer of the system holds.
            let tensor = Tensor::full(DType::F32, &[3 << 20], (own + 1) as f64).unwrap();
            ranks
                .all_reduce_into(&everyone, Reduction::Sum, &tensor, &tensor)
                .and_then(|pending| pending.wait())
                .map_err(text)?;
            let n = ranks.ranks();
            assert!(tensor.to_f64().unwrap().iter().all(|&value| value == (n * (n + 1) / 2) as f64));
            Ok(())
        }
        "hosts" => {
            // Two hosts of two ranks: within a host, across, and within again, as hierarchical algorithms do.
            let tensor = Tensor::full(DType::F32, &[64], (own + 1) as f64).unwrap();
            let host = own / 2;
            let inside = tessera_runtime::ranks::Group::of(vec![2 * host, 2 * host + 1], own).unwrap();
            let across = tessera_runtime::ranks::Group::of(vec![own % 2, own % 2 + 2], own).unwrap();
            let half = Tensor::zeros(DType::F32, &[32]).unwrap();
            let mut hierarchical = || {
                ranks.reduce_scatter_into(&inside, Reduction::Sum, &tensor, &half)?.wait()?;
                ranks.all_reduce_into(&across, Reduction::Sum, &half, &half)?.wait()?;
                ranks.all_gather_into(&inside, &half, &tensor)?.wait()
            };
            hierarchical().map_err(text)?;
            assert!(tensor.to_f64().unwrap().iter().all(|&value| value == 10.0));
            Ok(())
        }
        "again" => {
            // A communicator that failed is replaced by a new one of the same processes.
            let wrong = row(100 + own, DType::F32);
            let failed = ranks.all_reduce_into(&everyone, Reduction::Sum, &wrong, &wrong).and_then(|pending| pending.wait());
            assert!(failed.is_err());
            assert!(ranks.barrier(&everyone).is_err(), "it stays failed");
            drop(ranks);
            sums(&mut world.tcp().map_err(text)?, 3)
        }
        "killed 0" | "killed 1" => {
            sums(&mut ranks, 3)?;
            if name.ends_with(&own.to_string()) {
                signal("-KILL");
            }
            sums(&mut ranks, 1000)
        }
        "stopped 0" | "stopped 1" => {
            sums(&mut ranks, 3)?;
            if name.ends_with(&own.to_string()) {
                signal("-STOP");
            }
            sums(&mut ranks, 1000)
        }
        "late" => {
            sums(&mut ranks, 3)?;
            if own == 1 {
                std::thread::sleep(CALL + Duration::from_secs(3));
            }
            sums(&mut ranks, 1)
        }
        "leaves" => {
            sums(&mut ranks, 3)?;
            if own == 1 { Ok(()) } else { sums(&mut ranks, 1) }
        }
        "sizes" => {
            let tensor = row(if own == 1 { 96 } else { 128 }, DType::F32);
            ranks.all_reduce_into(&everyone, Reduction::Sum, &tensor, &tensor).and_then(|pending| pending.wait()).map_err(text)
        }
        "types" => {
            let tensor = row(128, if own == 1 { DType::BF16 } else { DType::F32 });
            ranks.all_reduce_into(&everyone, Reduction::Sum, &tensor, &tensor).and_then(|pending| pending.wait()).map_err(text)
        }
        "order" => {
            let (small, large) = (row(2, DType::F32), row(2 * everyone.size(), DType::F32));
            for turn in [own == 1, own != 1] {
                let pending = match turn {
                    true => ranks.all_gather_into(&everyone, &small, &large),
                    false => ranks.reduce_scatter_into(&everyone, Reduction::Sum, &large, &small),
                };
                pending.and_then(|pending| pending.wait()).map_err(text)?;
            }
            Ok(())
        }
        "programs" => {
            drop(ranks);
            super::sharded::as_process(world)
        }
        "checked" => {
            let board: std::sync::Arc<dyn tessera_runtime::ranks::Board> = std::sync::Arc::new(world.clone());
            let mut ranks = Checked::new(ranks, board);
            make_calls(&mut ranks, 9, 40)?;
            // Each waits for what the other would send: without the comparison they would wait for ever.
            let tensor = row(4, DType::F32);
            ranks.recv(1 - own, &tensor).and_then(|pending| pending.wait()).map_err(text)
        }
        "join" => Ok(()),
        other => panic!("no case {other}"),
    }
}

#[test]
#[ignore = "a rank of the tests below, which start it"]
fn a_rank() {
    let Ok(name) = std::env::var("TEST_OF_RANKS") else { return };
    let placement = Knobs::placement().unwrap().expect("variables");
    let join = if name == "join" { Duration::from_secs(2) } else { Duration::from_secs(60) };
    let limits = Limits { join, call: CALL, patience: if name.contains("stopped") { PATIENCE } else { Duration::from_secs(30) } };
    let outcome = World::join(&placement, limits).map_err(text).and_then(|world| {
        let outcome = case(&name, &world);
        if let Err(reason) = &outcome {
            world.fail(reason);
        }
        outcome
    });
    match outcome {
        Ok(()) => println!("outcome: fine"),
        Err(reason) => println!("outcome: {reason}"),
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(name: &str, port: u16, (rank, ranks): (usize, usize)) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "ranks::processes::a_rank", "--nocapture", "--test-threads=1"])
        .env("TEST_OF_RANKS", name)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env("LOCAL_RANK", (rank % 2).to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("TESSERA_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process said last: its outcome, or none where it was killed. A process that does not end in time is, here.
fn outcome(mut child: Child, deadline: Instant) -> Option<String> {
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    child.wait().unwrap();
    assert!(!complaint.contains("panicked"), "{complaint}");
    let (_, outcome) = said.split_once("outcome: ")?;
    Some(outcome.split("\ntest ").next().unwrap_or(outcome).lines().next().unwrap_or_default().to_string())
}

/// The outcomes of all ranks of a case, by rank; all of them end within `limit`.
fn all(name: &str, ranks: usize, limit: Duration, dead: &[usize]) -> Vec<Option<String>> {
    let port = free_port();
    let children: Vec<Child> = (0..ranks).map(|rank| start(name, port, (rank, ranks))).collect();
    ended(children, limit, dead)
}

fn ended(children: Vec<Child>, limit: Duration, dead: &[usize]) -> Vec<Option<String>> {
    let deadline = Instant::now() + limit + SLACK;
    let (mut living, mut stopped) = (Vec::new(), Vec::new());
    for (rank, child) in children.into_iter().enumerate() {
        if dead.contains(&rank) { stopped.push((rank, child)) } else { living.push((rank, child)) }
    }
    let mut outcomes: Vec<(usize, Option<String>)> =
        living.into_iter().map(|(rank, child)| (rank, outcome(child, deadline))).collect();
    for (rank, mut child) in stopped {
        child.kill().unwrap();
        outcomes.push((rank, outcome(child, deadline)));
    }
    outcomes.sort_by_key(|(rank, _)| *rank);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn all_fine(name: &str, ranks: usize) {
    for (rank, outcome) in all(name, ranks, Duration::from_secs(60), &[]).into_iter().enumerate() {
        assert_eq!(outcome.as_deref(), Some("fine"), "rank {rank}");
    }
}

/// Every rank but `dead` says that `lost` is at fault.
fn all_say(name: &str, ranks: usize, limit: Duration, dead: &[usize], parts: &[&str]) {
    for (rank, outcome) in all(name, ranks, limit, dead).into_iter().enumerate() {
        if dead.contains(&rank) {
            continue;
        }
        let outcome = outcome.unwrap_or_else(|| panic!("{name}: rank {rank} did not end"));
        assert!(parts.iter().all(|part| outcome.contains(part)), "{name}: rank {rank}: {outcome}");
        assert!(outcome.contains(&format!("rank {rank}, call")), "{name}: rank {rank}: {outcome}");
    }
}

#[test]
fn random_calls_of_processes_give_what_they_say() {
    all_fine("calls", 3);
    all_fine("calls", 1);
}

#[test]
#[ignore = "long: a thousand calls"]
fn a_thousand_random_calls_of_processes() {
    all_fine("thousand", 4);
}

#[test]
fn large_tensors_do_not_make_ranks_wait_for_each_other() {
    all_fine("large", 3);
}

#[test]
fn two_hosts_of_two_ranks_sum_in_groups() {
    all_fine("hosts", 4);
}

#[test]
fn a_communicator_is_made_again_after_a_failure() {
    all_fine("again", 2);
}

#[test]
fn a_killed_process_ends_the_others() {
    all_say("killed 1", 3, Duration::from_secs(5), &[1], &["rank 1 is lost: its process ended", "all_reduce(100 x f32, sum)"]);
    all_say("killed 0", 3, Duration::from_secs(5), &[0], &["rank 0 is lost: its process ended"]);
}

#[test]
fn a_stopped_process_ends_the_others() {
    all_say("stopped 1", 3, 3 * PATIENCE, &[1], &["rank 1 is lost: no sign of life for 1.5 s", "all_reduce(100 x f32, sum)"]);
    all_say("stopped 0", 3, 3 * PATIENCE, &[0], &["rank 0 is lost: no sign of life for 1.5 s"]);
}

#[test]
fn a_rank_that_does_not_come_or_leaves_ends_the_others() {
    let outcomes = all("late", 2, CALL, &[]);
    let first = outcomes[0].as_deref().unwrap();
    assert!(first.contains("rank 1 did not take part within 4.") && first.contains("it was last in its call 3"), "{first}");
    let outcomes = all("leaves", 2, CALL, &[]);
    assert!(outcomes[0].as_deref().unwrap().contains("rank 1 stopped, and this rank waits for it"), "{outcomes:?}");
}

#[test]
fn calls_that_differ_are_found_between_processes() {
    for (name, parts) in [
        ("sizes", ["all_reduce(128 x f32, sum)", "all_reduce(96 x f32, sum)"]),
        ("types", ["all_reduce(128 x f32, sum)", "all_reduce(128 x bf16, sum)"]),
        ("order", ["reduce_scatter(2 x f32, sum)", "all_gather(2 x f32)"]),
    ] {
        let outcomes = all(name, 2, CALL, &[]);
        let found = outcomes.iter().flatten().any(|outcome| parts.iter().all(|part| outcome.contains(part)));
        assert!(found && outcomes.iter().all(|outcome| outcome.as_deref() != Some("fine")), "{name}: {outcomes:?}");
    }
}

#[test]
fn checked_calls_are_compared_before_they_are_made() {
    for (rank, outcome) in all("checked", 2, CALL, &[]).into_iter().enumerate() {
        let (own, other) =
            (format!("send(4 x f32) from {} to {rank}", 1 - rank), format!("send(4 x f32) from {rank} to {}", 1 - rank));
        let outcome = outcome.expect("an outcome");
        assert!(outcome.contains(&format!("{own}: rank {} calls {other} instead", 1 - rank)), "{outcome}");
    }
}

#[test]
fn sharded_programs_of_processes_equal_the_unsharded_ones() {
    all_fine("programs", 2);
    all_fine("programs", 3);
}

#[test]
fn ranks_that_do_not_belong_together_are_told_apart() {
    // One of the three never starts.
    let port = free_port();
    let children = vec![start("join", port, (0, 3)), start("join", port, (1, 3))];
    let outcomes = ended(children, Duration::from_secs(5), &[]);
    assert!(outcomes.iter().flatten().any(|outcome| outcome.contains("rank 2 is not there")), "{outcomes:?}");

    // One thinks that there are four.
    let port = free_port();
    let children = vec![start("join", port, (0, 2)), start("join", port, (1, 4))];
    let outcomes = ended(children, Duration::from_secs(5), &[]);
    let second = outcomes[1].as_deref().unwrap();
    assert!(second.contains("it is rank 1 of 4, and rank 0 waits for 2 ranks"), "{second}");

    // Whoever else connects disturbs nobody.
    let port = free_port();
    let first = start("calls", port, (0, 2));
    let deadline = Instant::now() + SLACK;
    let mut strangers = Vec::new();
    while strangers.len() < 3 && Instant::now() < deadline {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let says: &[u8] = [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 64]][strangers.len()];
            stream.write_all(says).unwrap();
            strangers.push(stream);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(strangers.len(), 3);
    let outcomes = ended(vec![first, start("calls", port, (1, 2))], Duration::from_secs(60), &[]);
    assert!(outcomes.iter().all(|outcome| outcome.as_deref() == Some("fine")), "{outcomes:?}");
}
