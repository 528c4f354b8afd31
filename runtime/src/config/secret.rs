//! A configured value that must not be printed: a password, a token, a URL with either inside.
//!
//! Absent: protection against a reader of the process's memory.

use std::{fmt, str::FromStr};

/// The longest secret read from a file; more is a wrong path, not a secret.
const FILE_BYTES_MAX: u64 = 64 * 1024;
const HIDDEN: &str = "***";

/// A value that prints redacted. Written as `@/path`, it is read from that file (one trailing line end is dropped),
/// so that it need not stand in an environment or a process list.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a secret could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file behind `@` cannot be read as text.
    #[error("cannot read the secret's file {path}: {source}")]
    Unreadable {
        /// The path as given.
        path: String,
        /// What the file system said.
        source: std::io::Error,
    },
    /// The file behind `@` is larger than any secret.
    #[error("the secret's file {path} holds more than {FILE_BYTES_MAX} bytes")]
    TooLarge {
        /// The path as given.
        path: String,
    },
}

impl Secret {
    /// The value itself. Do not print it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let Some(path) = text.strip_prefix('@') else { return Ok(Self(text.to_owned())) };
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
            return Err(SecretError::TooLarge { path: path.to_owned() });
        }
        let mut value = std::fs::read_to_string(path).map_err(unreadable)?;
        if value.ends_with('\n') {
            value.pop();
            if value.ends_with('\r') {
                value.pop();
            }
        }
        Ok(Self(value))
    }
}

/// `***`, or for a URL the URL without what could be a password: an operator wants to see host and database.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(HIDDEN) };
        if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
            return f.write_str(HIDDEN);
        }
        write!(f, "{scheme}://")?;
        // The last `@`, not the first before a slash: an unescaped slash in a password must not put it on display.
        // Hiding a bit of an odd path is the cheaper mistake.
        let rest = match rest.rsplit_once('@') {
            Some((user, rest)) => {
                // A bare word before `@` is a user name for a database, but a token elsewhere: hidden as well.
                match user.split_once(':') {
                    Some((user, _)) => write!(f, "{user}:{HIDDEN}@")?,
                    None => write!(f, "{HIDDEN}@")?,
                }
                rest
            }
            None => rest,
        };
        // Parameters can carry passwords too (`?password=`); which ones is the driver's business, so none is shown.
        match rest.split_once(['?', '#']) {
            Some((rest, _)) => write!(f, "{rest}?{HIDDEN}"),
            None => f.write_str(rest),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_where_but_not_with_what() {
        for (url, shown) in [
            (
                "postgres://holdfast:hunter2@db.example:5432/orders",
                "postgres://holdfast:***@db.example:5432/orders",
            ),
            ("postgres://u:hun/ter2@db/orders", "postgres://u:***@db/orders"),
            ("postgres://u:hun@ter2@db/orders", "postgres://u:***@db/orders"),
            ("postgres://u:hunter2#x@db/orders", "postgres://u:***@db/orders"),
            ("postgres://db/orders?password=hunter2&sslmode=require", "postgres://db/orders?***"),
            ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
            ("https://hunter2@api.example/v1", "https://***@api.example/v1"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("http://127.0.0.1:7001", "http://127.0.0.1:7001"),
        ] {
            let secret: Secret = url.parse().unwrap();
            assert_eq!(secret.to_string(), shown);
            assert_eq!(format!("{secret:?}"), format!("Secret({shown})"));
            assert_eq!(secret.expose(), url);
            assert!(!format!("{secret} {secret:?} {secret:#?}").contains("ter2"), "{url}");
        }
    }

    #[test]
    fn anything_else_is_hidden_whole() {
        for text in ["hunter2", "", "a b://hunter2", "://hunter2"] {
            assert_eq!(text.parse::<Secret>().unwrap().to_string(), HIDDEN);
        }
    }

    #[test]
    fn a_path_is_read() {
        let path = std::env::temp_dir().join(format!("holdfast-secret-{}", uuid::Uuid::new_v4()));
        std::fs::write(&path, "hunter2 \r\n").unwrap();
        let secret: Secret = format!("@{}", path.display()).parse().unwrap();
        assert_eq!(secret.expose(), "hunter2 ");
        std::fs::write(&path, vec![b'x'; 65 * 1024]).unwrap();
        let refused = format!("@{}", path.display()).parse::<Secret>();
        assert!(matches!(refused, Err(SecretError::TooLarge { .. })));
        std::fs::remove_file(&path).unwrap();
        let refused = format!("@{}", path.display()).parse::<Secret>();
        assert!(matches!(refused, Err(SecretError::Unreadable { .. })));
    }
}
