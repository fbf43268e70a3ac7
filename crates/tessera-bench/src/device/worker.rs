//! A baseline in a process of its own: it works on the harness's tensors and passes the harness's gate.
//!
//! One JSON object a line in each direction. The harness asks, the worker answers with `{"ok": true, ...}` or
//! `{"error": "..."}`:
//!
//! ```text
//! -> {"ask":"describe"}                                   <- {"ok":true,"name":"torch 2.11","operators":["gemm","softmax"]}
//! -> {"ask":"prepare","case":1,"operator":"gemm","variant":"nt","size":{"m":4096,...},"precision":"bf16",
//!     "tensors":[{"name":"A","handle":"<hex>","offset":8192,"dtype":"bf16","shape":[4096,4096],"step":1,"role":"input"},...]}
//! -> {"ask":"run","case":1}                               the work once, finished when it answers
//! -> {"ask":"time","case":1,"timing":"cold","samples":10,"launches":1,"flush_bytes":125829120}   <- {"ok":true,"ns":[...]}
//! -> {"ask":"release","case":1}
//! ```
//! A variant has an operator's numbers behind its words: `nt alpha=0.5 beta=0.25`. What is `inout` may hold anything while launches are timed; before
//! one whose result is judged it is filled again.
//!
//! Several cases are prepared at once, as they are timed in turn; each has a number. `handle` names device memory of the harness
//! (the driver's interprocess handle of its allocation), `offset` counts bytes to the first element. The worker times as the
//! harness does: a blocked queue, events, reading through the cache before cold
//! samples.

use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tessera_driver::{DriverError, Stream};
use tessera_ops::{Plan, Role};

use super::subject::{Launcher, fault};
use super::tensor::DeviceTensors;
use super::timer::Timing;
use crate::case::{CaseKey, Fault};
use crate::conversation::{Conversation, Silence};
use crate::status::Status;
use crate::suite::CaseSpec;

/// A worker that does not answer for so long is ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// A baseline process.
pub struct Worker {
    talk: Conversation,
    name: String,
    operators: Vec<String>,
    /// Cases prepared so far.
    cases: u64,
}

impl Worker {
    /// Starts a command, whose words are separated by blanks, and asks it what it is.
    pub fn start(command: &str) -> Result<Worker, String> {
        let mut words = command.split_whitespace();
        let program = words.next().ok_or("the command is empty")?;
        let talk =
            Conversation::start(Command::new(program).args(words), true).map_err(|error| format!("`{program}`: {error}"))?;
        let mut worker = Worker { talk, name: String::new(), operators: Vec::new(), cases: 0 };
        let description = worker.ask(&json!({"ask": "describe"})).map_err(|fault| fault.message)?;
        worker.name = description["name"].as_str().unwrap_or(program).to_string();
        let operators = description["operators"].as_array().into_iter().flatten();
        worker.operators = operators.filter_map(|name| Some(name.as_str()?.to_string())).collect();
        Ok(worker)
    }

    /// What it says it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it knows a case's operator.
    pub fn offers(&self, key: &CaseKey) -> bool {
        self.operators.contains(&key.operator)
    }

    fn ask(&mut self, request: &Value) -> Result<Value, Fault> {
        let heard = self.talk.say(&request.to_string()).and_then(|()| self.talk.hear(PATIENCE));
        let line = heard.map_err(|silence| match silence {
            Silence::Patience(patience) => {
                Fault::new(Status::Timeout, format!("the baseline did not answer within {} s", patience.as_secs()))
            }
            Silence::Ended { how, .. } => Fault::new(Status::RuntimeError, format!("the baseline process ended ({how})")),
        })?;
        let answer: Value = serde_json::from_str(&line).map_err(|error| fault(format!("`{line}`: {error}")))?;
        match answer["error"].as_str() {
            Some(why) if answer["unsupported"] == true => Err(Fault::new(Status::Unsupported, why)),
            Some(why) => Err(Fault::new(Status::RuntimeError, why)),
            None => Ok(answer),
        }
    }
}

/// A case prepared in a worker.
pub(crate) struct WorkerLauncher {
    worker: Rc<RefCell<Worker>>,
    case: u64,
    key: CaseKey,
    plan: Rc<Plan>,
    flush_bytes: u64,
    config: String,
}

impl WorkerLauncher {
    pub(crate) fn prepare(
        worker: &Rc<RefCell<Worker>>,
        case: &CaseSpec,
        plan: &Rc<Plan>,
        tensors: &DeviceTensors,
    ) -> Result<WorkerLauncher, Fault> {
        let (key, plan) = (case.key.clone(), Rc::clone(plan));
        let (number, config) = hand_over(worker, &key, &plan, tensors)?;
        let flush_bytes = 2 * tensors.l2_bytes();
        Ok(WorkerLauncher { worker: Rc::clone(worker), case: number, key, plan, flush_bytes, config })
    }

    fn release(&self) {
        let _ = self.worker.borrow_mut().ask(&json!({"ask": "release", "case": self.case}));
    }
}

/// Has a worker prepare a case on these tensors: the case's number there, and what the worker says of its configuration.
fn hand_over(worker: &Rc<RefCell<Worker>>, key: &CaseKey, plan: &Plan, tensors: &DeviceTensors) -> Result<(u64, String), Fault> {
    let mut list = Vec::new();
    for (position, spec) in plan.tensors.iter().enumerate() {
        let (handle, offset) = tensors.view(position).share().map_err(fault)?;
        let hex: String = handle.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let role = match spec.role {
            Role::Input => "input",
            Role::Output => "output",
            Role::InOut => "inout",
            Role::Workspace => "workspace",
            Role::Counter => "counter",
        };
        list.push(json!({
            "name": spec.name, "handle": hex, "offset": offset, "dtype": spec.dtype.name(), "shape": spec.shape,
            "step": spec.step, "role": role,
        }));
    }
    worker.borrow_mut().cases += 1;
    let case = worker.borrow().cases;
    let request = json!({
        "ask": "prepare", "case": case, "operator": key.operator, "variant": key.variant, "size": key.size, "precision": key.precision,
        "tensors": list,
    });
    let answer = worker.borrow_mut().ask(&request)?;
    let config = answer["config"].as_str().map_or_else(|| worker.borrow().name.clone(), str::to_string);
    Ok((case, config))
}

impl Launcher for WorkerLauncher {
    fn enqueue(&mut self, _tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError> {
        // What was queued here before, poison above all, comes first; the work itself is done when the worker answers.
        stream.synchronize()?;
        let answer = self.worker.borrow_mut().ask(&json!({"ask": "run", "case": self.case}));
        answer.map(drop).map_err(|fault| DriverError::Argument(fault.message))
    }

    fn time(&mut self, timing: Timing, samples: usize, launches: usize) -> Option<Result<Vec<f64>, Fault>> {
        let request = json!({
            "ask": "time", "case": self.case, "timing": timing.name(), "samples": samples, "launches": launches, "flush_bytes": self.flush_bytes,
        });
        let answer = self.worker.borrow_mut().ask(&request);
        Some(answer.map(|answer| answer["ns"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()))
    }

    fn rebind(&mut self, tensors: &DeviceTensors) -> Result<(), Fault> {
        let (case, config) = hand_over(&self.worker, &self.key, &self.plan, tensors)?;
        self.release();
        (self.case, self.config) = (case, config);
        Ok(())
    }

    fn config(&self) -> String {
        self.config.clone()
    }
}

impl Drop for WorkerLauncher {
    fn drop(&mut self) {
        // The memory is about to be freed here.
        self.release();
    }
}
