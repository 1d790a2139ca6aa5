//! `${NAME}` inside the strings of `config.yaml`.

/// The text with every `${NAME}` that `lookup` knows replaced. What it doesn't know, and what isn't a name, stays.
pub(crate) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        done.push_str(before);
        let after = from.get(2..).unwrap_or_default();
        let found = after.split_once('}').and_then(|(name, tail)| {
            crate::kind::is_variable_name(name).then(|| lookup(name).map(|value| (value, tail)))?
        });
        match found {
            // What was put in is not looked at again, so a value can't expand into more.
            Some((value, tail)) => {
                done.push_str(&value);
                rest = tail;
            }
            None => {
                done.push_str("${");
                rest = after;
            }
        }
    }
    done.push_str(rest);
    done
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn known_names_are_replaced_and_others_stay() {
        let lookup = |name: &str| match name {
            "USER" => Some("ada".to_owned()),
            "LOOP" => Some("${LOOP}".to_owned()),
            _ => None,
        };
        for (text, expected) in [
            ("${USER}", "ada"),
            ("/home/${USER}/x", "/home/ada/x"),
            ("${NOBODY}", "${NOBODY}"),
            ("${LOOP}", "${LOOP}"),
            ("${", "${"),
            ("${USER", "${USER"),
            ("${${USER}}", "${ada}"),
            ("$USER $5", "$USER $5"),
            ("${}", "${}"),
            ("é${USER}é", "éadaé"),
        ] {
            assert_eq!(expand(text, &lookup), expected);
        }
    }
}
