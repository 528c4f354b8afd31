//! Names that say nothing are refused: of files, modules, types and functions.

use super::sources::Source;
use super::tokens::Token;

/// They name a role in the code instead of a thing of the domain, and collect whatever has no better place.
const EMPTY_WORDS: &[&str] =
    &["manager", "managers", "helper", "helpers", "util", "utils", "common", "misc", "impl"];
const NAMING: &[&str] = &["struct", "enum", "trait", "type", "fn", "mod", "union"];

pub(crate) fn violations(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    if file == "mod.rs" {
        found.push(format!("{}: modules are {folder}.rs beside {folder}/, not mod.rs", source.path));
    }
    for part in source.path.trim_end_matches(".rs").split('/') {
        found.extend(empty_word(part).map(|word| format!("{}: {part} is named {word}", source.path)));
    }
    for pair in source.tokens.windows(2) {
        let [keyword, Token { text: name, line }] = pair else { continue };
        if NAMING.contains(&keyword.text.as_str()) {
            found.extend(
                empty_word(name).map(|word| format!("{}:{line}: {name} is named {word}", source.path)),
            );
        }
    }
    found
}

/// The first empty word of a name in `snake_case` or `CamelCase`.
fn empty_word(name: &str) -> Option<&'static str> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character == '_' || character == '-' || character.is_uppercase() {
            words.push(String::new());
        }
        let last = words.last_mut().expect("it begins with one word");
        last.extend(character.to_lowercase().filter(|character| character.is_alphanumeric()));
    }
    EMPTY_WORDS.iter().find(|empty| words.iter().any(|word| word == *empty)).copied()
}

#[cfg(test)]
mod planted {
    use super::super::sources::Source;
    use super::violations;

    #[test]
    fn an_empty_name_is_found() {
        for (path, code) in [
            ("order-svc/src/util.rs", ""),
            ("order-svc/src/common/money.rs", ""),
            ("order-svc/src/orders.rs", "struct SagaManager;"),
            ("order-svc/src/orders.rs", "mod helpers { }"),
            ("order-svc/src/orders.rs", "fn parse_util() {}"),
            ("order-svc/src/orders.rs", "struct StoreImpl;"),
            ("order-svc/src/order/mod.rs", ""),
        ] {
            let found = violations(&Source::new(path, code));
            assert_eq!(found.len(), 1, "{path} {code}: {found:?}");
        }
    }

    #[test]
    fn a_name_that_holds_such_letters_is_not() {
        for code in [
            "struct Utilisation;",
            "fn uncommon() {}",
            "impl Store for Postgres {}",
            "// a helper\nfn f() {}",
        ] {
            assert_eq!(
                violations(&Source::new("order-svc/src/orders.rs", code)),
                Vec::<String>::new(),
                "{code}"
            );
        }
    }
}
