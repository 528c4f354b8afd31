//! A Rust source as the flat list of its tokens: comments and the insides of strings cannot be mistaken for code,
//! and code inside macros is not overlooked. No syntax beyond that.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token and the line it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let stream: TokenStream = source.parse().expect("a source that compiles");
    let mut flat = Vec::new();
    flatten(stream, &mut flat);
    flat
}

fn flatten(stream: TokenStream, flat: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                flat.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), flat);
                flat.push(Token { text: close.to_owned(), line: group.span_close().start().line });
            }
            TokenTree::Ident(ident) => flat.push(Token { text: ident.to_string(), line }),
            TokenTree::Punct(punct) => flat.push(Token { text: punct.as_char().to_string(), line }),
            // Literals hold no code.
            TokenTree::Literal(_) => flat.push(Token { text: "\"\"".to_owned(), line }),
        }
    }
}

/// The tokens without the items under `#[cfg(test)]`: what is shipped.
pub(crate) fn shipped(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if spell(tokens, at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            at = end_of_item(tokens, at + 7);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// One past the item that begins at `at`: past its closing brace, or its semicolon if it has no braces.
fn end_of_item(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + offset + 1;
                }
            }
            ";" if depth == 0 => return at + offset + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Whether the tokens from `at` on spell `words`.
pub(crate) fn spell(tokens: &[Token], at: usize, words: &[&str]) -> bool {
    words
        .iter()
        .enumerate()
        .all(|(offset, word)| tokens.get(at + offset).is_some_and(|token| token.text == *word))
}

/// Lines where a path begins with `root` (a crate's name, or `crate`), followed by the path's next segment, if any.
pub(crate) fn paths_from(tokens: &[Token], root: &str) -> Vec<(usize, Option<String>)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == root) {
        let begins_path = spell(tokens, at + 1, &[":", ":"]);
        let imported = at > 0 && ["use", "crate"].contains(&tokens[at - 1].text.as_str());
        if (begins_path || imported) && !continues_path(tokens, at) {
            let next = begins_path.then(|| tokens.get(at + 3)).flatten();
            found.push((token.line, next.map(|token| token.text.clone())));
        }
    }
    found
}

/// Whether the token at `at` is a later segment of a path (`a::at`), not the first one of `::at` or `at`.
fn continues_path(tokens: &[Token], at: usize) -> bool {
    if at < 2 || !spell(tokens, at - 2, &[":", ":"]) {
        return false;
    }
    let before = at.checked_sub(3).map(|before| tokens[before].text.as_str());
    before.is_some_and(|text| {
        text == ">" || text.starts_with(|first: char| first.is_alphanumeric() || first == '_')
    }) && before != Some("use")
}

#[cfg(test)]
mod planted {
    use super::{paths_from, shipped, tokens};

    #[test]
    fn a_crate_is_found_however_it_is_named() {
        for code in [
            "use tonic::Status;",
            "use ::tonic::Status;",
            "use tonic;",
            "extern crate tonic;",
            "fn f() -> tonic::Status { unreachable!() }",
            "fn f() { select! { a = tonic::call() => () } }",
        ] {
            assert_eq!(paths_from(&tokens(code), "tonic").len(), 1, "{code}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        for code in [
            "// use tonic::Status;",
            "/// See tonic::Status.\nstruct S;",
            "const S: &str = \"tonic::Status\";",
            "use crate::tonic::Status;",
            "use tonic_health::pb;",
            "let tonic = 1;",
        ] {
            assert_eq!(paths_from(&tokens(code), "tonic"), Vec::new(), "{code}");
        }
    }

    #[test]
    fn tests_are_not_shipped_and_what_follows_them_is() {
        let code =
            "#[cfg(test)] mod tests { fn f() { a(); } } #[cfg(test)] use x::y; #[cfg(test)] mod t; fn g() {}";
        assert_eq!(
            shipped(&tokens(code)),
            tokens("fn g() {}").into_iter().map(on_line_one).collect::<Vec<_>>()
        );
    }

    fn on_line_one(token: super::Token) -> super::Token {
        super::Token { line: 1, ..token }
    }

    #[test]
    fn the_next_segment_and_the_line_are_told() {
        let code = "\nuse crate::store::Orders;";
        assert_eq!(paths_from(&tokens(code), "crate"), vec![(2, Some("store".to_owned()))]);
    }
}
