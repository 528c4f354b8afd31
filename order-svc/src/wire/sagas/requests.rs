//! What operators ask for.

use super::{
    ACTOR_CHARS_MAX, Asked, Duration, Filter, Many, Operation, OrderError, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX,
    Page, REASON_CHARS_MAX, SagaId, Scope, Seq, Status, Uuid, Verb, Violation, Violations, api, page,
};

/// Characters of a kind, a participant, a step, an attribute's name or its value.
const NAME_CHARS_MAX: usize = 200;
/// Characters of a part of an error: more is no search.
const ERROR_CHARS_MAX: usize = 200;
/// An output's part of [`saga::operate::ORDER_BYTES_MAX`]: the rest is for actor, reason and step. What is too much in all
/// the same is refused with the order.
const OUTPUT_BYTES_MAX: usize = 60_000;
/// No saga is older; it keeps the database's arithmetic of times within its range.
const OLDER_THAN_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// PauseSagas.
#[derive(Debug, Clone, PartialEq)]
pub enum Paused {
    /// A single saga.
    One(SagaId, Operation),
    /// More.
    Many(Many, Asked),
}

/// ResumeSagas.
#[derive(Debug, Clone, PartialEq)]
pub enum Resumed {
    /// A single saga.
    One(SagaId, Operation),
    /// More, or the clock.
    Scope(Scope, Asked),
}

/// ListSagas.
pub fn filter(request: api::ListSagasRequest) -> Result<(Filter, Page), Vec<Violation>> {
    let mut violations = Violations::default();
    let status = match api::saga::State::try_from(request.state) {
        Ok(api::saga::State::Unspecified) => None,
        Ok(state) => Status::parse(crate::wire::unprefixed(state.as_str_name(), "STATE_")),
        Err(_) => {
            violations.add("state", "is no state of a saga");
            None
        }
    };
    let size = match request.page_size {
        0 => PAGE_SIZE_DEFAULT,
        size if (1..=PAGE_SIZE_MAX).contains(&size) => size,
        _ => {
            violations.add("page_size", "must be 1 to 1,000");
            PAGE_SIZE_DEFAULT
        }
    };
    let older_than = match request.older_than.map(Duration::try_from) {
        None => None,
        Some(Ok(given)) if given <= OLDER_THAN_MAX => Some(given),
        Some(_) => {
            violations.add("older_than", "must be 0 to 100 years");
            None
        }
    };
    if request.attribute_name.is_empty() != request.attribute_value.is_empty() {
        violations.add("attribute_value", "must be given with attribute_name, and only then");
    }
    let mut given = |field: &str, text: String, chars_max: usize| {
        (!text.is_empty()).then(|| violations.text(field, text, chars_max))
    };
    let filter = Filter {
        kind: given("kind", request.kind, NAME_CHARS_MAX),
        status,
        attribute: given("attribute_name", request.attribute_name, NAME_CHARS_MAX).zip(given(
            "attribute_value",
            request.attribute_value,
            NAME_CHARS_MAX,
        )),
        older_than,
        error_contains: given("error_contains", request.error_contains, ERROR_CHARS_MAX),
    };
    let mut page = Page { after: None, size: u16::try_from(size).unwrap_or(u16::MAX) };
    if !request.page_token.is_empty() {
        match page::read(&request.page_token, &format!("{filter:?}")) {
            Some(after) => page.after = Some(SagaId(after)),
            None => violations.add("page_token", "is no token of a page with these filters"),
        }
    }
    violations.none_or((filter, page))
}

/// ExplainSaga.
pub fn saga_id(id: &str) -> Result<SagaId, Vec<Violation>> {
    let mut violations = Violations::default();
    let id = violations.saga_id(id);
    violations.none_or(id)
}

/// GetSaga.
pub fn get(request: &api::GetSagaRequest) -> Result<(SagaId, Seq), Vec<Violation>> {
    let mut violations = Violations::default();
    let id = violations.saga_id(&request.saga_id);
    if request.after_seq < 0 {
        violations.add("after_seq", "must not be negative");
    }
    violations.none_or((id, Seq(request.after_seq)))
}

/// RetrySaga.
pub fn retry(request: api::RetrySagaRequest) -> Result<(SagaId, Operation), Vec<Violation>> {
    let mut violations = Violations::default();
    let id = violations.saga_id(&request.saga_id);
    let asked = violations.asked(request.request_id, request.actor, request.reason);
    order(violations, id, asked, Verb::Retry)
}

/// CompensateSaga.
pub fn compensation(request: api::CompensateSagaRequest) -> Result<(SagaId, Operation), Vec<Violation>> {
    let mut violations = Violations::default();
    let id = violations.saga_id(&request.saga_id);
    let asked = violations.asked(request.request_id, request.actor, request.reason);
    order(violations, id, asked, Verb::Compensate)
}

/// ResolveStep.
pub fn resolution(request: api::ResolveStepRequest) -> Result<(SagaId, Operation), Vec<Violation>> {
    use api::resolve_step_request::Direction;
    let mut violations = Violations::default();
    let id = violations.saga_id(&request.saga_id);
    let direction = request.direction();
    let step = violations.text("step", request.step, NAME_CHARS_MAX);
    let output = request.output_json;
    let verb = match direction {
        Direction::Do => {
            if output.len() > OUTPUT_BYTES_MAX {
                violations.add("output_json", "must be at most 60,000 bytes");
            }
            let output = serde_json::from_str(&output).unwrap_or_else(|_| {
                violations.add("output_json", "must be JSON");
                serde_json::Value::Null
            });
            Verb::ResolveStep { step, output, passes_pivot: false }
        }
        Direction::Undo => {
            if !output.is_empty() {
                violations.add("output_json", "must be empty: an undo gives nothing");
            }
            Verb::ResolveUndo { step }
        }
        Direction::Unspecified => {
            violations.add("direction", "must be DIRECTION_DO or DIRECTION_UNDO");
            Verb::ResolveUndo { step }
        }
    };
    let asked = violations.asked(request.request_id, request.actor, request.reason);
    order(violations, id, asked, verb)
}

/// PauseSagas.
pub fn pause(request: api::PauseSagasRequest) -> Result<Paused, Vec<Violation>> {
    use api::pause_sagas_request::Scope;
    let mut violations = Violations::default();
    let asked = violations.asked(request.request_id, request.actor, request.reason);
    let many = match request.scope {
        Some(Scope::SagaId(id)) => {
            let id = violations.saga_id(&id);
            return order(violations, id, asked, Verb::Pause).map(|(id, order)| Paused::One(id, order));
        }
        Some(Scope::Kind(kind)) => Many::Kind(violations.text("kind", kind, NAME_CHARS_MAX)),
        Some(Scope::Participant(participant)) => {
            Many::Participant(violations.text("participant", participant, NAME_CHARS_MAX))
        }
        None => {
            violations.add("scope", "one of saga_id, kind and participant must be given");
            Many::Kind(String::new())
        }
    };
    let asked = violations.none_or(asked)?.ok_or_else(Vec::new)?;
    Ok(Paused::Many(many, asked))
}

/// ResumeSagas.
pub fn resume(request: api::ResumeSagasRequest) -> Result<Resumed, Vec<Violation>> {
    use api::resume_sagas_request::Scope as Wire;
    let mut violations = Violations::default();
    let asked = violations.asked(request.request_id, request.actor, request.reason);
    let scope = match request.scope {
        Some(Wire::SagaId(id)) => {
            let id = violations.saga_id(&id);
            return order(violations, id, asked, Verb::Resume).map(|(id, order)| Resumed::One(id, order));
        }
        Some(Wire::Kind(kind)) => Scope::Kind(violations.text("kind", kind, NAME_CHARS_MAX)),
        Some(Wire::Participant(participant)) => {
            Scope::Participant(violations.text("participant", participant, NAME_CHARS_MAX))
        }
        Some(Wire::Clock(api::Clock {})) => Scope::Clock,
        None => {
            violations.add("scope", "one of saga_id, kind, participant and clock must be given");
            Scope::Clock
        }
    };
    let asked = violations.none_or(asked)?.ok_or_else(Vec::new)?;
    Ok(Resumed::Scope(scope, asked))
}

/// An order to one saga, unless something is wrong with its request.
fn order(
    mut violations: Violations,
    id: SagaId,
    asked: Option<Asked>,
    verb: Verb,
) -> Result<(SagaId, Operation), Vec<Violation>> {
    let order = asked.map(|asked| Operation::new(asked, verb)).transpose().unwrap_or_else(|error| {
        let field = match error {
            OrderError::HasNul | OrderError::TooLarge => "output_json",
            _ => "request_id",
        };
        violations.add(field, format!("cannot be kept: {error}"));
        None
    });
    let order = violations.none_or(order)?.ok_or_else(Vec::new)?;
    Ok((id, order))
}

impl Violations {
    fn saga_id(&mut self, id: &str) -> SagaId {
        SagaId(Uuid::parse_str(id).unwrap_or_else(|_| {
            self.add("saga_id", "must be a UUID");
            Uuid::nil()
        }))
    }

    fn text(&mut self, field: &str, text: String, chars_max: usize) -> String {
        if text.trim().is_empty() || text.chars().count() > chars_max || text.contains('\0') {
            self.add(field, format!("must be 1 to {chars_max} characters"));
        }
        text
    }

    /// Who asks for what, and why. `None`: something is wrong with it, and was said.
    fn asked(&mut self, request_id: String, actor: String, reason: String) -> Option<Asked> {
        let before = self.0.len();
        let request_id = self.caller_id("request_id", request_id).0;
        let actor = self.text("actor", actor, ACTOR_CHARS_MAX);
        let reason = self.text("reason", reason, REASON_CHARS_MAX);
        if self.0.len() > before {
            return None;
        }
        Asked::new(request_id, actor, reason).map_err(|error| self.add("request_id", error.to_string())).ok()
    }
}
