//! `tessera doctor`: what this machine has and what will be used.

use serde_json::{Value, json};
use tessera::bench::Environment;
use tessera::runtime::{Device, Knobs, module_cache};

use crate::arguments::Doctor;
use crate::command::list::describe;
use crate::failure::{Failure, Outcome};

pub(crate) fn doctor(arguments: Doctor) -> Outcome {
    let environment = Environment::detect();
    let gpu = match Device::cuda(0) {
        Ok(device) => describe(&device),
        Err(error) => format!("none: {error}"),
    };
    let best = Device::best();
    let cache = module_cache().folder().map_or_else(|| "off".to_string(), |folder| folder.display().to_string());
    let knobs = Knobs::from_env();
    let rows = Knobs::rows();
    if arguments.json {
        let settings: Vec<_> = rows.iter().map(|row| json!({"name": row.name, "about": row.doc, "value": row.value})).collect();
        let object = json!({
            "version": env!("CARGO_PKG_VERSION"), "environment": environment, "gpu": gpu, "cache": cache, "device": best.device.to_string(), "settings": settings,
        });
        println!("{object}");
    } else {
        println!("tessera    {}", env!("CARGO_PKG_VERSION"));
        println!("device     {} ({})", best.device, best.reason);
        println!("gpu        {gpu}");
        println!("cache      {cache}");
        let facts = serde_json::to_value(&environment).map_err(Failure::environment)?;
        for (name, value) in facts.as_object().into_iter().flatten() {
            println!("{name:<18} {}", shown(value));
        }
        println!("\nsettings (environment variables)");
        for row in &rows {
            println!("  {:<22} {} [{}]", row.name, row.doc, row.value.as_deref().unwrap_or("not set"));
        }
    }
    knobs.map(drop).map_err(Failure::environment)
}

/// A fact as a reader expects it: a list's items with commas between, nothing for what is not known.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "not known".to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
