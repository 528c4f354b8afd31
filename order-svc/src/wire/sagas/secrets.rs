//! What of a journal is shown. A checkout begins with the token its customer pays with: no operator needs it, and a
//! journal that is copied into a ticket must not carry it.

use serde_json::Value;

use crate::checkout;

const HIDDEN: &str = "[hidden]";

/// The name of an entry's event, and the entry as it may be shown.
pub(super) fn shown(kind: &str, json: &str) -> (String, String) {
    let Ok(mut entry) = serde_json::from_str::<Value>(json) else {
        // Nested deeper than is read: what cannot be looked through is not shown.
        return ("unreadable".into(), Value::Object(serde_json::Map::new()).to_string());
    };
    let event = entry.get("event").and_then(Value::as_str).unwrap_or("unreadable").to_owned();
    if kind != checkout::KIND || !hide_payments(&mut entry) {
        return (event, json.to_owned());
    }
    (event, entry.to_string())
}

/// Hides what an order is paid with, wherever it stands. Whether anything was hidden.
fn hide_payments(value: &mut Value) -> bool {
    let mut hidden = false;
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| hidden |= hide_payments(item)),
        Value::Object(fields) => {
            for (name, field) in fields {
                hidden |= if name == "payment" { hide(field) } else { hide_payments(field) };
            }
        }
        _ => {}
    }
    hidden
}

/// Keeps how an order is paid, and hides with what.
fn hide(payment: &mut Value) -> bool {
    match payment {
        Value::Object(fields) => fields.values_mut().for_each(|field| *field = HIDDEN.into()),
        Value::String(how) if how == "later" => return false,
        other => *other = HIDDEN.into(),
    }
    true
}
