//! Names that nobody else has.

/// Random digits in hex.
pub(crate) fn random(bytes: usize) -> String {
    let mut all = vec![0; bytes];
    let _ = getrandom::fill(&mut all);
    all.iter().map(|byte| format!("{byte:02x}")).collect()
}
