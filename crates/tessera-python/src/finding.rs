//! What the emulator's sanitizers found.

use tessera::emu::Launched;
use tessera::ir::bug;

/// All findings as a text for people, and each as JSON.
pub(crate) fn told(launched: &[Launched]) -> (String, Vec<String>) {
    let findings =
        || launched.iter().flat_map(|launched| launched.report.findings.iter().map(move |finding| (launched, finding)));
    let text: Vec<String> = findings().map(|(launched, finding)| format!("{}: {finding}", launched.kernel)).collect();
    let json = findings()
        .map(|(_, finding)| serde_json::to_string(finding).unwrap_or_else(|error| bug!("a finding is plain data: {error}")))
        .collect();
    (text.join("\n"), json)
}
