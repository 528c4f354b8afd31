//! Cancel against charge, with every token, two hundred times each; and everything at once on one payment.

use crate::bed::{Bed, charge, reason, until};
use proto::payment::v1::CancelPaymentRequest;
use tokio::task::JoinSet;
use tonic::Code;

const ROUNDS: usize = 200;
const AT_ONCE: usize = 20;

/// Cancel and charge one scope at once, both repeated until they have an answer, as the order service would.
async fn race(mut client: crate::bed::Client, payment: String, token: &'static str) {
    let mut other = client.clone();
    let request = charge(&payment, token);
    let scope = request.scope.clone();
    let charging = tokio::spawn(async move {
        loop {
            match client.charge(request.clone()).await {
                Err(status) if status.code() == Code::Unavailable => {}
                Ok(_) => return,
                Err(status) => {
                    let (_, reason) = reason(&status);
                    assert!(
                        ["PAYMENT_CANCELLED", "PAYMENT_DECLINED"].contains(&reason.as_str()),
                        "{status:?}"
                    );
                    return;
                }
            }
        }
    });
    loop {
        match other
            .cancel_payment(CancelPaymentRequest { scope: scope.clone(), keep_payment_id: String::new() })
            .await
        {
            Err(status) if status.code() == Code::Unavailable => {}
            Ok(_) => break,
            Err(status) => panic!("{status:?}"),
        }
    }
    charging.await.unwrap();
}

/// A cancelled scope keeps no money, whatever the charge does.
async fn check(token: &'static str) {
    let bed = Bed::start().await;
    let mut racing = JoinSet::new();
    for n in 0..ROUNDS {
        if racing.len() == AT_ONCE {
            racing.join_next().await.unwrap().unwrap();
        }
        racing.spawn(race(bed.client.clone(), format!("p{n}"), token));
    }
    racing.join_all().await;
    // What pays after its cancel is given back a little later; everything else is done now.
    if token.starts_with("sim_pays_after") {
        until("the provider's last word", async || {
            bed.count("select count(*) from payment_simulator.charges where captures_at is not null").await
                == 0
                && bed
                    .count("select count(*) from payment_simulator.events where acknowledged_at is null")
                    .await
                    == 0
        })
        .await;
    }
    until("nothing is open", async || {
        bed.count("select count(*) from payment.payments where due_at is not null").await == 0
    })
    .await;
    let kept = bed
        .count(
            "select count(*) from payment.payments where cancel_requested_at is null or captured <> refunded
                or state not in ('CANCELLED', 'DECLINED')",
        )
        .await;
    assert_eq!(kept, 0, "{token}");
    let kept = bed
        .count(
            "select count(*) from payment_simulator.charges where status = 'CAPTURED' and refunded <> amount",
        )
        .await;
    assert_eq!(kept, 0, "{token}: the provider keeps money");
    let twice = bed
        .count("select count(*) from (select from payment_simulator.refunds group by charge_key having count(*) > 1) t")
        .await;
    assert_eq!(twice, 0, "{token}: refunded twice");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_an_approval() {
    check("sim_approve").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_a_decline() {
    check("sim_decline").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_a_late_approval() {
    check("sim_approve_after_5").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_a_charge_that_never_ends() {
    check("sim_never").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_a_silent_charge() {
    check("sim_timeout").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_a_failing_provider() {
    check("sim_fail_1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_a_charge_that_pays_after_cancel() {
    check("sim_pays_after_cancel_20").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_races_silent_refunds() {
    check("sim_refund_timeout").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_cancels_and_charges_at_once_on_one_payment() {
    let bed = Bed::start().await;
    for n in 0..50 {
        let payment = format!("p{n}");
        let scope = format!("{payment}.scope");
        bed.charge(&payment, "sim_approve").await.unwrap();
        let (first, second, third) = (format!("{payment}.a"), format!("{payment}.b"), format!("{payment}.c"));
        let (cancelled, again, ..) = tokio::join!(
            bed.cancel(&scope),
            bed.cancel(&scope),
            bed.refund(&payment, &first, Some(60)),
            bed.refund(&payment, &second, Some(60)),
            bed.refund(&payment, &third, None),
            bed.charge(&payment, "sim_approve"),
        );
        assert!(cancelled.is_ok() && again.is_ok());
    }
    let kept = bed
        .count("select count(*) from payment.payments where state <> 'CANCELLED' or refunded <> 100 or captured <> 100")
        .await;
    assert_eq!(kept, 0);
    bed.end().await;
}
