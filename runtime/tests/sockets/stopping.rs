//! Stopping: kind to calls that run, deaf to everything that would hold it up.

use crate::{
    bare::Bare,
    probe::{Probe, Served, answer, ask, listen, patient, plain, until},
};
use futures::StreamExt as _;
use runtime::detached;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::Notify};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Well under any drain deadline used here.
const PROMPT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn an_endless_stream_is_cut_at_the_deadline() {
    let endless = Probe::listen(|_| {
        futures::stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(answer(1))
        })
    });
    let served = Served::start(|server| server.service(endless).drain(Duration::from_millis(300))).await;
    let mut answers = listen(&served.client(), plain()).await.unwrap();
    answers.message().await.unwrap().unwrap();
    let took = served.stop().await;
    assert!(took >= Duration::from_millis(300) && took < PROMPT, "{took:?}");
    let end = async {
        while answers.message().await?.is_some() {}
        Ok::<_, tonic::Status>(())
    };
    let cut = tokio::time::timeout(PROMPT, end).await.expect("the client is told");
    assert!(cut.is_err(), "a cut stream does not look like one that ended");
}

#[tokio::test]
async fn a_call_that_hangs_is_cut_at_the_deadline() {
    let entered = Arc::new(Notify::new());
    let entering = Arc::clone(&entered);
    let hanging = Probe::ask(move |_| {
        entering.notify_one();
        std::future::pending()
    });
    let served = Served::start(|server| server.service(hanging).drain(Duration::from_millis(200))).await;
    let client = served.client();
    let call = tokio::spawn(async move { ask(&client, plain()).await });
    entered.notified().await;
    let took = served.stop().await;
    assert!(took >= Duration::from_millis(200) && took < PROMPT, "{took:?}");
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn silent_and_idle_connections_hold_nothing_up() {
    let served = Served::probe(Probe::ask(|_| async { Ok(answer(1)) })).await;
    let never_spoke = TcpStream::connect(served.address).await.unwrap();
    let mut stopped_speaking = TcpStream::connect(served.address).await.unwrap();
    // A whole greeting: preface and an empty SETTINGS frame. No farewell will ever be acknowledged.
    stopped_speaking.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let client = served.client();
    ask(&client, plain()).await.unwrap();
    let took = served.stop().await;
    assert!(took < PROMPT, "{took:?}");
    drop((never_spoke, stopped_speaking));
}

#[tokio::test]
async fn a_running_call_and_its_detached_work_finish() {
    let (entered, proceed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let done = Arc::new(AtomicU32::new(0));
    let (entering, awaited, counted) = (Arc::clone(&entered), Arc::clone(&proceed), Arc::clone(&done));
    let served = Served::probe(Probe::ask(move |_| {
        let (entering, awaited, counted) =
            (Arc::clone(&entering), Arc::clone(&awaited), Arc::clone(&counted));
        async move {
            // Outlives the answer: nobody waits for it but the drain.
            let (begun, told) = tokio::sync::oneshot::channel();
            let mut after = Box::pin(detached(async move {
                let _ = begun.send(());
                tokio::time::sleep(Duration::from_millis(200)).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }));
            assert!(futures::poll!(&mut after).is_pending());
            told.await.unwrap();
            drop(after);
            entering.notify_one();
            awaited.notified().await;
            Ok(answer(7))
        }
    }))
    .await;
    let client = served.client();
    let call = tokio::spawn(async move { ask(&client, patient(Duration::from_secs(10))).await });
    entered.notified().await;
    let address = served.address;
    served.shutdown.cancel();
    until("new connections are refused", async || TcpStream::connect(address).await.is_err()).await;
    proceed.notify_one();
    served.stop().await;
    assert_eq!(call.await.unwrap().unwrap().status, 7);
    assert_eq!(done.load(Ordering::SeqCst), 1, "the drain waited for detached work");
}

#[tokio::test]
async fn health_says_not_serving_and_lets_its_watchers_go() {
    let (entered, proceed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (entering, awaited) = (Arc::clone(&entered), Arc::clone(&proceed));
    let served = Served::probe(Probe::ask(move |_| {
        let (entering, awaited) = (Arc::clone(&entering), Arc::clone(&awaited));
        async move {
            entering.notify_one();
            awaited.notified().await;
            Ok(answer(1))
        }
    }))
    .await;
    let mut watches = Vec::new();
    for service in ["", "probe.v1.Probe", "nothing.v1.Here"] {
        let question = HealthCheckRequest { service: service.to_owned() };
        let mut watch = HealthClient::new(served.client()).watch(question).await.unwrap().into_inner();
        let first = watch.message().await.unwrap().unwrap().status();
        watches.push((first, watch));
    }
    let client = served.client();
    let call = tokio::spawn(async move { ask(&client, plain()).await });
    entered.notified().await;
    served.shutdown.cancel();
    let mut seen = Vec::new();
    for (first, watch) in &mut watches {
        let mut all = vec![*first];
        while let Some(next) = watch.message().await.unwrap() {
            all.push(next.status());
        }
        all.dedup();
        seen.push(all);
    }
    let [overall, probe, unknown] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(overall.last(), Some(&ServingStatus::NotServing));
    assert_eq!(probe.last(), Some(&ServingStatus::NotServing));
    assert_eq!(unknown, &[ServingStatus::ServiceUnknown]);
    proceed.notify_one();
    assert!(served.stop().await < PROMPT);
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing_running() {
    struct Gone(Arc<AtomicU32>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let gone = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&gone);
    let entered = Arc::new(Notify::new());
    let entering = Arc::clone(&entered);
    let probe = Probe::ask(move |_| {
        let guard = Gone(Arc::clone(&counted));
        entering.notify_one();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = runtime::server::Server::new(listener).service(probe).serve(CancellationToken::default());
    let serving = tokio::spawn(serving);
    let mut bare = Bare::connect(address).await;
    let call = tokio::spawn(async move { bare.call("/probe.v1.Probe/Ask", &[]).await });
    entered.notified().await;
    serving.abort();
    until("the handler is gone", async || gone.load(Ordering::SeqCst) == 1).await;
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn a_client_finds_a_peer_that_came_back() {
    let served = Served::probe(Probe::ask(|_| async { Ok(answer(1)) })).await;
    let (client, address) = (served.client(), served.address);
    ask(&client, plain()).await.unwrap();
    served.stop().await;
    let refused = ask(&client, patient(Duration::from_secs(2))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let again = runtime::server::Server::new(listener).service(Probe::ask(|_| async { Ok(answer(2)) }));
    tokio::spawn(again.serve(CancellationToken::default()));
    until("the peer answers again", async || {
        ask(&client, patient(Duration::from_secs(2))).await.is_ok_and(|answer| answer.status == 2)
    })
    .await;
}
