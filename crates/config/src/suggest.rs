//! "Did you mean": the nearest of the known words, if one is near enough to be meant.

/// The candidate that was most likely meant by `text`.
#[must_use]
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = normalise(text);
    // Long input is not a typing slip, and comparing it costs time in proportion to its length.
    if wanted.is_empty() || wanted.len() > 80 {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let known = normalise(candidate);
        let distance = strsim::damerau_levenshtein(&wanted, &known);
        // A third of the word may be wrong, which still keeps `cwd` from being taken for `cpu`.
        let allowed = (known.chars().count().max(wanted.chars().count()) / 3).max(1);
        if distance <= allowed && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The same for variables: what they all start with is no likeness.
pub(crate) fn nearest_variable(
    text: &str,
    candidates: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    const PREFIX: &str = "TERMINAL_";
    let rest = text.strip_prefix(PREFIX)?;
    let known: Vec<&'static str> = candidates.into_iter().collect();
    let found = nearest(rest, known.iter().filter_map(|name| name.strip_prefix(PREFIX)))?;
    known.into_iter().find(|name| name.strip_prefix(PREFIX) == Some(found))
}

fn normalise(text: &str) -> String {
    text.trim().to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["timeout", "docker_image", "cwd", "container_cpu"];
        assert_eq!(nearest("tiemout", known), Some("timeout"));
        assert_eq!(nearest("docker-image", known), Some("docker_image"));
        assert_eq!(nearest("DOCKER_IMGE", known), Some("docker_image"));
        assert_eq!(nearest("cpu", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("colour_scheme", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
