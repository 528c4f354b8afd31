//! The scripts, each put together from the files it shares with others and its own.

use redis::Script;

/// At `maxmemory` stock may still be given back and sold, so that a full Redis empties itself.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";

macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!(concat!("../scripts/", $file, ".lua")), "\n"),+))
    };
    (allow_oom: $($file:literal),+) => {
        Script::new(&[ALLOW_OOM, concat!($(include_str!(concat!("../scripts/", $file, ".lua")), "\n"),+)].concat())
    };
}

#[derive(Clone, Debug)]
pub(super) struct Scripts {
    pub(super) reserve: Script,
    pub(super) confirm: Script,
    pub(super) release: Script,
    pub(super) expire: Script,
    pub(super) receive: Script,
    pub(super) adjust: Script,
    pub(super) open: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            reserve: script!("prelude", "outcome", "reserve"),
            confirm: script!(allow_oom: "prelude", "outcome", "confirm"),
            release: script!(allow_oom: "prelude", "outcome", "release"),
            expire: script!(allow_oom: "prelude", "outcome", "expire"),
            receive: script!("prelude", "change", "receive"),
            adjust: script!("prelude", "change", "adjust"),
            open: script!("open"),
        }
    }
}
