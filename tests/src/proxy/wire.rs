//! As much of HTTP/2 and of Postgres's protocol as it takes to find a request and its answer in a stream of bytes.

use super::gate::Gate;

/// What the caller speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 without TLS, unary calls.
    Grpc,
    /// Postgres without TLS.
    Postgres,
}

/// Which moment is to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Of the n-th call, counted from 1 and from when this was armed.
    Call {
        /// Which.
        nth: usize,
        /// What of it: no call commits.
        held: Held,
    },
    /// Of the first flush that carries this event of the journal.
    Record {
        /// Its name in the journal, such as `pivot_begun`.
        event: &'static str,
        /// What of the flush.
        held: Held,
    },
}

/// What is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The request: nothing has happened.
    Request,
    /// Only of a record: the commit of what was written.
    Commit,
    /// The answer: it has happened, and the caller does not know.
    Answer,
}

impl Held {
    /// All of a call.
    pub const OF_A_CALL: [Self; 2] = [Self::Request, Self::Answer];
    /// All of a record.
    pub const OF_A_RECORD: [Self; 3] = [Self::Request, Self::Commit, Self::Answer];
}

/// What becomes of a chunk that the caller sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// It passes up to here; the rest waits.
    HoldFrom(usize),
    /// It passes; what comes back waits.
    HoldAnswer,
}

/// Reads what a caller sends.
#[derive(Debug)]
pub(super) enum Requests {
    Grpc(Frames),
    Postgres {
        /// The end of the chunk before, in which a name may have begun.
        before: Vec<u8>,
        /// The record was seen here: now its commit is waited for.
        committing: Option<Held>,
    },
}

/// Longer than every name that is looked for.
const NAME_MAX: usize = 64;

impl Requests {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Grpc => Self::Grpc(Frames::after(PREFACE)),
            Protocol::Postgres => Self::Postgres { before: Vec::new(), committing: None },
        }
    }

    pub(super) fn read(&mut self, bytes: &[u8], gate: &Gate) -> Verdict {
        match self {
            Self::Grpc(frames) => {
                for at in frames.headers(bytes) {
                    match gate.is_call() {
                        Some(Moment::Call { held: Held::Answer, .. }) => return Verdict::HoldAnswer,
                        Some(_) => return Verdict::HoldFrom(at),
                        None => {}
                    }
                }
                Verdict::Pass
            }
            Self::Postgres { before, committing } => {
                let mut text = std::mem::take(before);
                text.extend_from_slice(bytes);
                let verdict = Self::look(&text, committing, gate);
                *before = text.split_off(text.len().saturating_sub(NAME_MAX));
                verdict
            }
        }
    }

    fn look(text: &[u8], committing: &mut Option<Held>, gate: &Gate) -> Verdict {
        if let Some(held) = *committing
            && contains(text, b"COMMIT\0")
        {
            *committing = None;
            return if held == Held::Answer { Verdict::HoldAnswer } else { Verdict::HoldFrom(0) };
        }
        let Some(event) = gate.record() else { return Verdict::Pass };
        if !contains(text, format!(r#""event":"{event}""#).as_bytes()) {
            return Verdict::Pass;
        }
        match gate.take_record() {
            Some(Moment::Record { held: Held::Request, .. }) => Verdict::HoldFrom(0),
            Some(Moment::Record { held, .. }) => {
                *committing = Some(held);
                Verdict::Pass
            }
            _ => Verdict::Pass,
        }
    }
}

/// Reads what comes back.
#[derive(Debug)]
pub(super) enum Answers {
    Grpc(Frames),
    Postgres,
}

impl Answers {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Grpc => Self::Grpc(Frames::after(0)),
            Protocol::Postgres => Self::Postgres,
        }
    }

    /// Whether an answer begins in this chunk.
    pub(super) fn begin(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Grpc(frames) => !frames.headers(bytes).is_empty(),
            Self::Postgres => !bytes.is_empty(),
        }
    }
}

/// What an HTTP/2 client says first.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;

/// Finds where frames begin in a stream of HTTP/2.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes before the next frame begins.
    skip: usize,
    header: Vec<u8>,
}

impl Frames {
    fn after(skip: usize) -> Self {
        Self { skip, header: Vec::new() }
    }

    /// Where HEADERS frames begin in this chunk; one that began in the chunk before it, at 0.
    fn headers(&mut self, bytes: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            if self.skip > 0 || at == bytes.len() {
                return found;
            }
            let begins = at.saturating_sub(self.header.len());
            let wanted = (FRAME_HEADER - self.header.len()).min(bytes.len() - at);
            self.header.extend_from_slice(&bytes[at..at + wanted]);
            at += wanted;
            if let [a, b, c, kind, ..] = *self.header
                && self.header.len() == FRAME_HEADER
            {
                if kind == HEADERS {
                    found.push(begins);
                }
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.header.clear();
            }
        }
    }
}

fn contains(text: &[u8], name: &[u8]) -> bool {
    text.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        frame.extend(std::iter::repeat_n(HEADERS, usize::from(length)));
        frame
    }

    #[test]
    fn headers_are_found_however_the_stream_is_cut() {
        let stream =
            [vec![HEADERS; PREFACE], frame(4, 0), frame(HEADERS, 20), frame(0, 7), frame(HEADERS, 1)];
        let stream = stream.concat();
        assert_eq!(Frames::after(PREFACE).headers(&stream), [PREFACE + 9, PREFACE + 9 + 29 + 16]);
        for size in 1..stream.len() {
            let mut frames = Frames::after(PREFACE);
            let found: usize = stream.chunks(size).map(|chunk| frames.headers(chunk).len()).sum();
            assert_eq!(found, 2, "in chunks of {size}");
        }
    }

    #[test]
    fn the_nth_call_is_held_where_it_begins() {
        let gate = Gate::new(Protocol::Grpc);
        gate.arm(Moment::Call { nth: 2, held: Held::Request });
        let mut requests = Requests::new(Protocol::Grpc);
        assert_eq!(requests.read(&[0; PREFACE], &gate), Verdict::Pass);
        assert_eq!(requests.read(&frame(HEADERS, 5), &gate), Verdict::Pass);
        let second = [frame(0, 3), frame(HEADERS, 5)].concat();
        assert_eq!(requests.read(&second, &gate), Verdict::HoldFrom(12));
    }

    #[test]
    fn a_record_is_found_across_chunks_and_its_commit_after_it() {
        let gate = Gate::new(Protocol::Postgres);
        gate.arm(Moment::Record { event: "turned", held: Held::Answer });
        let mut requests = Requests::new(Protocol::Postgres);
        for chunk in [r"COMMIT\0", r#"[{"event":"tu"#] {
            assert_eq!(requests.read(chunk.as_bytes(), &gate), Verdict::Pass);
        }
        assert_eq!(requests.read(br#"rned"}]"#, &gate), Verdict::Pass);
        assert_eq!(requests.read(b"Q\0\0\0\x0bCOMMIT\0", &gate), Verdict::HoldAnswer);
        gate.arm(Moment::Record { event: "turned", held: Held::Request });
        assert_eq!(requests.read(br#"[{"event":"turned"}]"#, &gate), Verdict::HoldFrom(0));
    }
}
