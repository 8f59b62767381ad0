//! Suggests a known name for an unknown one.

/// Returns the name with the smallest edit distance, if it is similar.
pub(crate) fn meant<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let by_distance = names.map(|known| (strsim::levenshtein(name, known), known));
    by_distance.min().filter(|(distance, _)| *distance <= 1 + name.len() / 4).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let names = || ["sitting", "knitting", "reads"].into_iter();
        assert_eq!(meant("siting", names()), Some("sitting"));
        assert_eq!(meant("kniting", names()), Some("knitting"));
        assert_eq!(meant("writes", names()), None);
    }
}
