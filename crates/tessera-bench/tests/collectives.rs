//! The suite of collectives: right results pass, wrong ones and ranks that fail are found.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tessera_bench::collectives::{
    Answer, Ask, Collective, CollectiveError, CollectiveSelection, CollectiveSuite, Form, Inputs, Lines, Make, Member, Team, Way,
    Wired, digest_of, serve_member, serve_wired,
};
use tessera_bench::scale::{Algorithm, recorded};
use tessera_bench::{GateOptions, GateReport, Mode, Monotonic, Record, Results, RunOptions, Status, Suite, check, run, table};
use tessera_driver::StreamHandle;
use tessera_runtime::ranks::{Call, Communicator, ExchangeError, Meeting, Operation, Pending};
use tessera_runtime::{Device, Tensor};
use tessera_types::DType;

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn selection(collectives: &[Collective], dtypes: &[DType], bytes: &[u64], ranks: usize) -> CollectiveSelection {
    CollectiveSelection { collectives: collectives.to_vec(), dtypes: dtypes.to_vec(), bytes: bytes.to_vec(), ranks }
}

fn gate(suite: &CollectiveSuite, at: usize) -> Result<GateReport, tessera_bench::Fault> {
    let case = &suite.cases()[at];
    let mut subject = suite.build(case, &case.implementations[0])?;
    check(subject.as_mut(), GateOptions { seeds: 2, suite_seed: 1, tolerance: None, specials: false })
}

#[test]
fn every_collective_passes_the_gate_among_any_number_of_ranks() {
    for ranks in [2, 3, 4, 7, 16] {
        let asked = selection(&Collective::ALL, &TYPES, &[4096], ranks);
        let suite = CollectiveSuite::select(&asked, vec![Way::threads(ranks)]).expect("a suite");
        assert_eq!(suite.cases().len(), 18);
        for (at, case) in suite.cases().iter().enumerate() {
            let report = gate(&suite, at).unwrap_or_else(|fault| panic!("{}: {fault}", case.key));
            assert!(report.passed(), "{}: {:?}", case.key, report.reason);
            assert!(report.checks.iter().any(|check| check.name == "exact_lane" && check.ok), "{:?}", report.checks);
        }
    }
}

#[test]
fn large_results_are_held_against_their_digests() {
    let asked = selection(&Collective::ALL, &[DType::F16], &[6 << 20], 2);
    let suite = CollectiveSuite::select(&asked, vec![Way::threads(2)]).expect("a suite");
    for (at, case) in suite.cases().iter().enumerate() {
        let report = gate(&suite, at).unwrap_or_else(|fault| panic!("{}: {fault}", case.key));
        assert!(report.passed(), "{}: {:?}", case.key, report.reason);
        let is_large = case.key.operator != "reduce_scatter";
        assert!(report.checks.iter().any(|check| check.name == "identity") || !is_large, "{}: {:?}", case.key, report.checks);
    }
}

/// What a rank does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    /// One element of rank 1's result is another one.
    Element(usize),
    /// Nothing is exchanged.
    Nothing,
    /// Rank 1 writes one element before its result.
    Beyond,
    /// Rank 1 never comes.
    Hangs,
    /// Results are those of the launch before.
    Late,
}

struct Crooked {
    own: Box<dyn Communicator>,
    wrong: Wrong,
    last: Option<Tensor>,
}

impl Communicator for Crooked {
    fn rank(&self) -> usize {
        self.own.rank()
    }

    fn ranks(&self) -> usize {
        self.own.ranks()
    }

    fn device(&self) -> &Device {
        self.own.device()
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        if self.wrong == Wrong::Nothing {
            return Ok(Pending::done());
        }
        if self.wrong == Wrong::Hangs && self.rank() == 1 && calls.iter().any(|call| call.operation != Operation::Barrier) {
            std::thread::sleep(Duration::from_secs(20));
        }
        let pending = self.own.start(calls, stream)?;
        if let (1, Some(result)) = (self.rank(), calls.iter().find_map(|call| call.result.clone())) {
            let one = |tensor: &Tensor, at: usize| tensor.slice(0, at..at + 1, 1).expect("an element");
            let seven = Tensor::from_f64(result.dtype(), &[1], &[7.25]).expect("a number");
            match self.wrong {
                Wrong::Element(at) => one(&result, at).copy_from(&seven)?,
                Wrong::Beyond => result.strided(result.len(), &[1], &[1]).and_then(|beyond| beyond.copy_from(&seven))?,
                Wrong::Late => {
                    let now = result.contiguous()?;
                    if let Some(last) = self.last.replace(now) {
                        result.copy_from(&last)?;
                    }
                }
                Wrong::Nothing | Wrong::Hangs => {}
            }
        }
        Ok(pending)
    }

    fn abort(&mut self, reason: &str) {
        self.own.abort(reason);
    }
}

fn crooked(ranks: usize, wrong: Wrong) -> Way {
    Way::new("crooked", move || {
        let meeting = Meeting::new(ranks).with_limit(Duration::from_secs(30));
        let make = |rank| {
            let own = Box::new(meeting.rank(rank));
            Box::new(move || Ok(Box::new(Crooked { own, wrong, last: None }) as Box<dyn Communicator>)) as Make
        };
        let lines = Lines::threads("crooked", (0..ranks).map(make).collect());
        let patience = if wrong == Wrong::Hangs { Duration::from_millis(1500) } else { Duration::from_secs(30) };
        Ok(Box::new(lines.with_patience(patience)) as Box<dyn Team>)
    })
}

#[test]
fn wrong_results_are_found() {
    let cases = [
        (Wrong::Element(5), 4096, Some("exact_lane")),
        (Wrong::Element(1_500_001), 6 << 20, Some("identity")),
        (Wrong::Nothing, 4096, Some("dual_poison")),
        // What comes late shows where inputs changed in between.
        (Wrong::Late, 4096, None),
    ];
    for collective in [Collective::AllReduce, Collective::AllGather, Collective::AllToAll] {
        for (wrong, bytes, check) in cases {
            let asked = selection(&[collective], &[DType::F16], &[bytes], 2);
            let suite = CollectiveSuite::select(&asked, vec![crooked(2, wrong)]).expect("a suite");
            let report = gate(&suite, 0).unwrap_or_else(|fault| panic!("{collective} {wrong:?}: {fault}"));
            assert!(!report.passed(), "{collective}: {wrong:?} is not seen");
            let failed: Vec<&str> = report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
            assert!(check.is_none_or(|check| failed.contains(&check)), "{collective} {wrong:?}: {failed:?}");
        }
    }
    let asked = selection(&[Collective::AllReduce], &[DType::F32], &[4096], 2);
    let suite = CollectiveSuite::select(&asked, vec![crooked(2, Wrong::Beyond)]).expect("a suite");
    let report = gate(&suite, 0).expect("a report");
    assert!(
        report.reason.as_deref().is_some_and(|why| why.contains("rank 1, 4096 bytes into the guard before the result")),
        "{report:?}"
    );
}

#[test]
fn a_rank_that_hangs_ends_the_team_in_time() {
    let asked = selection(&[Collective::AllReduce], &[DType::F32], &[4096], 3);
    let suite = CollectiveSuite::select(&asked, vec![crooked(3, Wrong::Hangs)]).expect("a suite");
    let begin = Instant::now();
    let fault = gate(&suite, 0).expect_err("nobody answers");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(fault.status, Status::Timeout);
    assert!(fault.message.contains("`crooked`: it did not answer within"), "{fault}");
    assert!(suite.is_lost(), "nothing more is asked of it");
}

#[test]
fn a_process_that_dies_is_named_with_its_last_words() {
    let way = Way::processes("mortal", 2, || {
        let mut command = Command::new("sh");
        let script = r#"read ask; if [ "$RANK" = 1 ]; then echo "no such library" >&2; exit 3; fi; echo '{}'; cat > /dev/null"#;
        command.args(["-c", script]);
        command
    });
    let asked = selection(&[Collective::AllReduce], &[DType::F32], &[4096], 2);
    let Err(CollectiveError::Team { name, why }) = CollectiveSuite::select(&asked, vec![way]) else { panic!("it started") };
    assert_eq!(name, "mortal");
    assert!(why.contains("rank 1") && why.contains("exit status: 3") && why.contains("no such library"), "{why}");
}

#[test]
fn selections_that_make_no_sense_are_refused() {
    let refused = |bytes: u64, ranks: usize| {
        let asked = selection(&[Collective::AllReduce], &[DType::F32], &[bytes], ranks);
        CollectiveSuite::select(&asked, vec![Way::threads(ranks.max(1))]).err().expect("refused").to_string()
    };
    assert_eq!(refused(4096, 1), "`--ranks 1`: there is nobody to exchange with\nhelp: write `--ranks 2` or more");
    assert_eq!(refused(32, 3), "32 bytes do not divide among 3 ranks in parts of 16 bytes\nhelp: write 48 bytes or more");
    let asked = selection(&[Collective::AllReduce], &[DType::F32], &[4096], 2);
    let unstarted = |name: &str| Way::new(name, || panic!("a way that is refused is not started"));
    let ways = vec![unstarted("threads"), unstarted("torch"), unstarted("threads")];
    assert_eq!(
        CollectiveSuite::select(&asked, ways).err().expect("refused").to_string(),
        "`threads` is named twice, and rows of the two could not be told apart\nhelp: name each way (`--over`) and each baseline once"
    );
    let form = Form::of_bytes(Collective::AllGather, 3, 4096, DType::BF16).expect("a form");
    assert_eq!((form.bytes(), form.count, form.given(), form.got()), (4080, 2040, 680, 2040));
}

/// A suite's results as a file has them.
fn measured(suite: &CollectiveSuite) -> Results {
    let options = RunOptions {
        mode: Mode::Quick,
        seed: 1,
        order: 7,
        process: 0,
        timed: None,
        time_limit: None,
        memory_limit: None,
        device: "cpu".into(),
        argv: Vec::new(),
        knobs: Default::default(),
        now: 1_795_226_400,
    };
    let mut lines = Vec::new();
    let mut sink = |record: Record| {
        serde_json::to_writer(&mut lines, &record).expect("a line");
        lines.push(b'\n');
        Ok(())
    };
    run(suite, &options, &Monotonic::default(), None, &mut sink, &mut |_| {}).expect("a run");
    Results::parse(&lines).expect("a results file")
}

#[test]
fn rows_tell_bus_bandwidth_and_who_was_slowest() {
    let asked = selection(&[Collective::AllReduce], &[DType::BF16], &[4096, 65536], 4);
    let results = measured(&CollectiveSuite::select(&asked, vec![Way::threads(4)]).expect("a suite"));
    assert_eq!(results.rows.len(), 2);
    for row in &results.rows {
        let summary = row.summary.as_ref().expect("an outcome");
        assert!(summary.status.has_time(), "{:?}", summary.reason);
        let (rate, bus) = (summary.bytes_s.expect("a rate"), summary.bus_bytes_s.expect("a bus rate"));
        assert!((bus / rate - 1.5).abs() < 1e-9, "{bus} of {rate}");
        for block in &row.blocks {
            let state = block.device.expect("what the ranks took");
            let fastest = state.fastest_rank_ns.expect("the fastest");
            assert!(state.slowest_rank.is_some_and(|rank| rank < 4));
            assert!(fastest <= tessera_bench::stats::median(&block.samples_ns));
        }
    }
    let text = table(&results).iter().map(|row| row.cells.join(" ")).collect::<Vec<_>>().join("\n");
    assert!(text.contains("all_reduce 4096x4 bf16 threads") && text.contains(", bus "), "{text}");
}

#[test]
fn a_results_file_has_points_for_the_model() {
    let way = Way::new("nccl", || {
        let meeting = Meeting::new(2);
        let make = |rank| {
            let end = meeting.rank(rank);
            Box::new(move || Ok(Box::new(end) as Box<dyn Communicator>)) as Make
        };
        Ok(Box::new(Lines::threads("nccl", (0..2).map(make).collect())) as Box<dyn Team>)
    });
    let asked = selection(&[Collective::AllReduce, Collective::AllGather], &[DType::BF16], &[4096, 524_288, 1 << 20], 2);
    let points = recorded(&measured(&CollectiveSuite::select(&asked, vec![way]).expect("a suite")));
    let told: Vec<_> = points.iter().map(|point| (point.algorithm, point.ranks, point.bytes)).collect();
    // What protocol is between the two sizes is not known.
    let mut sorted = told.clone();
    sorted.sort();
    assert_eq!(sorted, [(Algorithm::RingLl, 2, 4096), (Algorithm::Ring, 2, 1 << 20)]);
    assert!(points.iter().all(|point| point.us > 0.0));
}

#[test]
fn ranks_of_other_hosts_are_asked_over_their_communicator() {
    let (words, exchanges) = (Meeting::new(3), Meeting::new(3));
    let others: Vec<_> = (1..3)
        .map(|rank| {
            let (mut words, own) = (words.rank(rank), exchanges.rank(rank));
            std::thread::spawn(move || serve_wired(&mut words, &mut Member::new(Box::new(own), "wired")))
        })
        .collect();
    let (first, own) = (words.rank(0), exchanges.rank(0));
    let way =
        Way::new(
            "wired",
            move || Ok(Box::new(Wired::new(Box::new(first), Member::new(Box::new(own), "wired"))) as Box<dyn Team>),
        );
    let asked = selection(&Collective::ALL, &[DType::BF16], &[4096], 3);
    let suite = CollectiveSuite::select(&asked, vec![way]).expect("a suite");
    for at in 0..suite.cases().len() {
        let report = gate(&suite, at).expect("a report");
        assert!(report.passed(), "{:?}", report.reason);
    }
    drop(suite);
    others.into_iter().for_each(|other| other.join().expect("a thread").expect("an end"));
}

#[test]
fn a_member_answers_what_it_cannot_do() {
    let meeting = Meeting::new(1);
    let mut member = Member::new(Box::new(meeting.rank(0)), "alone");
    let prepare = |ranks, dtype: &str| Ask::Prepare {
        case: 1,
        collective: Collective::AllReduce,
        bytes: 64,
        ranks,
        dtype: dtype.into(),
        implementation: String::new(),
    };
    let why = |answer: Answer| answer.error.expect("a failure");
    assert_eq!(why(member.answer(&prepare(2, "f32"))), "there are 1 ranks, not 2");
    assert_eq!(why(member.answer(&prepare(1, "f33"))), "`f33` is no type");
    assert_eq!(why(member.answer(&Ask::Run { case: 9 })), "there is no case 9");
    assert_eq!(member.answer(&prepare(1, "f32")).error, None);
    let beyond = Ask::Read { case: 1, rank: 0, start: usize::MAX, len: 2 };
    assert!(why(member.answer(&beyond)).contains("there are 16 elements"));
    let mut said = Vec::new();
    serve_member(&mut member, &b"nonsense\n{\"ask\":\"describe\"}\n"[..], &mut said).expect("it ends");
    let said = String::from_utf8(said).expect("text");
    let lines: Vec<Answer> = said.lines().map(|line| serde_json::from_str(line).expect("an answer")).collect();
    assert!(lines[0].error.as_deref().is_some_and(|why| why.starts_with("not a request")), "{said}");
    assert_eq!(lines[1].offers[0].collectives.len(), 6);
}

#[test]
fn python_makes_the_same_inputs_and_digests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../baselines");
    let script = "import sys, collectives as c
for dtype in ('f32', 'f16', 'bf16'):
    for exact in (True, False):
        for ranks in (2, 65):
            print(dtype, int(exact), ranks, *[repr(float(c.values(i, 5, 1, ranks, exact, dtype))) for i in (0, 1, 2, 777, 123456789)])
print(*[c.weights(i) for i in (0, 1, 99, 123456789)])";
    let output =
        match Command::new("python3").args(["-c", script]).current_dir(&folder).env("PYTHONDONTWRITEBYTECODE", "1").output() {
            Ok(output) => output,
            Err(error) => {
                eprintln!("skipped: no python3: {error}");
                return;
            }
        };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let (rows, weights) = text.trim_end().rsplit_once('\n').expect("lines");
    for row in rows.lines() {
        let words: Vec<&str> = row.split(' ').collect();
        let dtype = DType::parse(words[0]).expect("a type");
        let inputs = Inputs::new(5, words[1] == "1", words[2].parse().expect("ranks"), dtype).expect("inputs");
        for (word, index) in words[3..].iter().zip([0, 1, 2, 777, 123_456_789]) {
            assert_eq!(inputs.value(1, index), word.parse::<f64>().expect("a number"), "{row}");
            let stored = Tensor::from_f64(dtype, &[1], &[inputs.value(1, index)]).expect("a tensor");
            assert_eq!(stored.to_codes().expect("codes"), [inputs.code(1, index)], "every value is exact in its type");
        }
    }
    for (word, first) in weights.split(' ').zip([0, 1, 99, 123_456_789]) {
        assert_eq!(digest_of(&[1, 0], 2, first), word.parse::<u64>().expect("a number"));
    }
}
