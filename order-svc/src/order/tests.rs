use std::fmt::Write as _;

use super::*;

/// Every state, turning or not, against every event: a new pair must be looked at.
#[test]
fn transition_matrix() {
    let events = [
        OrderEvent::Held,
        OrderEvent::Paid,
        OrderEvent::Sold,
        OrderEvent::Turned(CancelReason::Customer),
        OrderEvent::Undone,
    ];
    let mut table = String::new();
    for &state in OrderState::ALL {
        for cancel_reason in [None, Some(CancelReason::PaymentExpired)] {
            for event in events {
                let before = Standing { state, cancel_reason, payment: PaymentState::Pending };
                let after = match before.after(event) {
                    Ok(after) => format!(
                        "{}{} payment {}",
                        after.state.as_str(),
                        after
                            .cancel_reason
                            .map(|reason| format!(" ({})", reason.as_str()))
                            .unwrap_or_default(),
                        after.payment.as_str()
                    ),
                    Err(_) => "illegal".into(),
                };
                let turning = if cancel_reason.is_some() { ", turned" } else { "" };
                writeln!(
                    table,
                    "{:<27}{:<18}-> {after}",
                    state.as_str().to_owned() + turning,
                    event_name(event)
                )
                .unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

fn event_name(event: OrderEvent) -> &'static str {
    match event {
        OrderEvent::Held => "held",
        OrderEvent::Paid => "paid",
        OrderEvent::Sold => "sold",
        OrderEvent::Turned(_) => "turned",
        OrderEvent::Undone => "undone",
    }
}

#[test]
fn a_declined_order_ends_declined() {
    let end = [OrderEvent::Held, OrderEvent::Turned(CancelReason::PaymentDeclined), OrderEvent::Undone]
        .into_iter()
        .try_fold(Standing::NEW, Standing::after)
        .unwrap();
    assert_eq!(
        end,
        Standing {
            state: OrderState::Cancelled,
            cancel_reason: Some(CancelReason::PaymentDeclined),
            payment: PaymentState::Declined
        }
    );
}

#[test]
fn names_read_back() {
    for &state in OrderState::ALL {
        assert_eq!(OrderState::parse(state.as_str()), Some(state));
    }
    for &reason in CancelReason::ALL {
        assert_eq!(CancelReason::parse(reason.as_str()), Some(reason));
    }
    assert_eq!(OrderState::parse("LOST"), None);
}
