//! The patience of calls, on both ends.

use crate::{
    bare::Bare,
    probe::{Probe, Served, answer, ask, listen, patient, plain, until},
};
use futures::StreamExt as _;
use runtime::{deadline, detached};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::Notify, time::Instant};
use tonic::{Code, Request};

#[tokio::test]
async fn the_server_ends_a_call_whose_patience_is_over() {
    let served = Served::probe(Probe::ask(|_| std::future::pending())).await;
    let mut bare = Bare::connect(served.address).await;
    let began = Instant::now();
    let came = bare.call("/probe.v1.Probe/Ask", &[("grpc-timeout", "80m")]).await.unwrap();
    assert_eq!(came.status(), Some(Code::DeadlineExceeded as i32), "{came:?}");
    assert!(began.elapsed() >= Duration::from_millis(80) && began.elapsed() < Duration::from_secs(5));
    let came = bare.call("/probe.v1.Probe/Ask", &[("grpc-timeout", "0m")]).await.unwrap();
    assert_eq!(came.status(), Some(Code::DeadlineExceeded as i32), "{came:?}");
}

#[tokio::test]
async fn the_client_says_deadline_exceeded_too() {
    let served = Served::probe(Probe::ask(|_| std::future::pending())).await;
    let client = served.client();
    // Often enough that either end's timer wins some of the time.
    for _ in 0..20 {
        let refused = ask(&client, patient(Duration::from_millis(20))).await.unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused:?}");
    }
}

#[tokio::test]
async fn a_peer_that_never_answers_costs_no_more_than_the_patience() {
    // Accepts in the kernel's backlog, and says nothing ever.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = runtime::client::connect(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
    let began = Instant::now();
    let refused = ask(&client, patient(Duration::from_millis(100))).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_handler_knows_what_is_left() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let served = Served::probe(Probe::ask(move |_| {
        let kept = Arc::clone(&kept);
        async move {
            let inside = deadline::remaining();
            let below = detached(async { deadline::remaining() }).await;
            kept.lock().unwrap().extend([inside, below]);
            Ok(answer(1))
        }
    }))
    .await;
    ask(&served.client(), patient(Duration::from_secs(3))).await.unwrap();
    ask(&served.client(), plain()).await.unwrap();
    let seen: Vec<_> = seen.lock().unwrap().iter().map(|left| left.unwrap()).collect();
    let [stated, stated_below, default, default_below] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(*stated <= Duration::from_secs(3) && *stated > Duration::from_secs(1), "{stated:?}");
    assert!(stated_below <= stated && *stated_below > Duration::from_secs(1), "{stated_below:?}");
    assert!(*default <= deadline::PATIENCE_DEFAULT && *default > Duration::from_secs(20), "{default:?}");
    assert!(default_below <= default);
    assert_eq!(deadline::remaining(), None, "outside a call nobody waits");
}

#[tokio::test]
async fn a_stream_outlives_the_patience_for_its_headers() {
    let served = Served::probe(Probe::listen(|_| {
        futures::stream::iter(1..=4).then(|item| async move {
            tokio::time::sleep(Duration::from_millis(60)).await;
            Ok(answer(item))
        })
    }))
    .await;
    let mut answers = listen(&served.client(), patient(Duration::from_millis(100))).await.unwrap();
    let mut items = Vec::new();
    while let Some(item) = answers.message().await.unwrap() {
        items.push(item.status);
    }
    assert_eq!(items, [1, 2, 3, 4]);
}

#[tokio::test]
async fn detached_work_survives_its_caller() {
    let (done, proceed) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (counted, awaited) = (Arc::clone(&done), Arc::clone(&proceed));
    let served = Served::probe(Probe::ask(move |_| {
        let (counted, awaited) = (Arc::clone(&counted), Arc::clone(&awaited));
        async move {
            detached(async move {
                awaited.notified().await;
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(answer(1))
            })
            .await
        }
    }))
    .await;
    let refused = ask(&served.client(), patient(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert_eq!(done.load(Ordering::SeqCst), 0);
    proceed.notify_one();
    until("the work is done", async || done.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_the_next_call_works() {
    let served = Served::probe(Probe::ask(|question| async move {
        assert!(question.service != "panic", "as asked");
        detached(async move {
            assert!(question.service != "detached", "as asked");
            Ok(answer(1))
        })
        .await
    }))
    .await;
    let client = served.client();
    for service in ["panic", "detached"] {
        let question = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
        let refused = ask(&client, Request::new(question)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal, "{refused:?}");
        assert!(!refused.message().contains("as asked"), "what failed inside is not the caller's to read");
    }
    ask(&client, plain()).await.unwrap();
}

#[tokio::test]
async fn many_calls_taken_back_at_once_do_not_cost_the_others_their_connection() {
    let served = Served::probe(Probe::ask(|question| async move {
        if question.service == "slow" {
            std::future::pending::<()>().await;
        }
        Ok(answer(1))
    }))
    .await;
    let client = served.client();
    let slow = || tonic_health::pb::HealthCheckRequest { service: "slow".to_owned() };
    for _ in 0..5 {
        let calls: Vec<_> = (0..200).map(|_| Box::pin(ask(&client, Request::new(slow())))).collect();
        let dropped = futures::future::join_all(calls);
        let _ = tokio::time::timeout(Duration::from_millis(5), dropped).await;
        ask(&client, patient(Duration::from_secs(5))).await.unwrap();
    }
}
