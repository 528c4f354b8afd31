//! Health follows readiness; reflection tells what is served.

use crate::probe::{Probe, Served, answer, until};
use runtime::client::Client;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

fn quiet() -> Probe {
    Probe::ask(|_| async { Ok(answer(1)) })
}

async fn health(client: &Client, service: &str) -> Result<ServingStatus, Status> {
    let question = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(client.clone()).check(question).await.map(|answer| answer.into_inner().status())
}

#[tokio::test]
async fn without_a_check_a_server_is_ready() {
    let served = Served::probe(quiet()).await;
    let client = served.client();
    for service in ["", "probe.v1.Probe", "grpc.health.v1.Health"] {
        until("serving", async || health(&client, service).await.unwrap() == ServingStatus::Serving).await;
    }
    let refused = health(&client, "nothing.v1.Here").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test]
async fn health_flips_with_readiness() {
    let ready = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ready);
    let served = Served::start(|server| {
        server.service(quiet()).readiness(move || {
            let asked = Arc::clone(&asked);
            async move { asked.load(Ordering::SeqCst) }
        })
    })
    .await;
    let client = served.client();
    for wanted in [ServingStatus::NotServing, ServingStatus::Serving, ServingStatus::NotServing] {
        ready.store(wanted == ServingStatus::Serving, Ordering::SeqCst);
        for service in ["", "probe.v1.Probe"] {
            until("flipped", async || health(&client, service).await.unwrap() == wanted).await;
        }
    }
}

#[tokio::test]
async fn a_check_that_hangs_counts_as_a_no_and_is_not_piled_up() {
    let (hangs, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (hanging, counted) = (Arc::clone(&hangs), Arc::clone(&begun));
    let served = Served::start(|server| {
        server.service(quiet()).readiness(move || {
            let hangs = hanging.load(Ordering::SeqCst);
            if hangs {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                true
            }
        })
    })
    .await;
    let client = served.client();
    until("serving", async || health(&client, "").await.unwrap() == ServingStatus::Serving).await;
    hangs.store(true, Ordering::SeqCst);
    until("not serving", async || health(&client, "").await.unwrap() == ServingStatus::NotServing).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    assert!(served.stop().await < Duration::from_secs(2), "a hanging check does not hold up the stop");
}

/// Both versions of the protocol have the same shape under another name.
macro_rules! reflect {
    ($version:ident, $client:expr, $request:ident, $response:ident) => {{
        use pb::{
            server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest::$request,
            server_reflection_response::MessageResponse::$response,
        };
        use tonic_reflection::pb::$version as pb;
        let request = pb::ServerReflectionRequest {
            host: String::new(),
            message_request: Some($request("grpc.health.v1.Health".to_owned())),
        };
        let mut answers = ServerReflectionClient::new($client.clone())
            .server_reflection_info(futures::stream::iter([request]))
            .await
            .unwrap()
            .into_inner();
        match answers.message().await.unwrap().unwrap().message_response {
            Some($response(found)) => found,
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test]
async fn reflection_answers_in_both_versions() {
    let served = Served::start(|server| {
        server.service(quiet()).reflection(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
    })
    .await;
    let client = served.client();
    let listed = reflect!(v1, client, ListServices, ListServicesResponse);
    let listed: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    assert_eq!(listed, ["grpc.health.v1.Health", "probe.v1.Probe"]);
    let listed = reflect!(v1alpha, client, ListServices, ListServicesResponse);
    let listed: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    assert_eq!(listed, ["grpc.health.v1.Health", "probe.v1.Probe"]);
    let files = reflect!(v1, client, FileContainingSymbol, FileDescriptorResponse);
    assert_eq!(files.file_descriptor_proto.len(), 1);
    let files = reflect!(v1alpha, client, FileContainingSymbol, FileDescriptorResponse);
    assert_eq!(files.file_descriptor_proto.len(), 1);
}

#[tokio::test]
async fn an_unreadable_descriptor_set_is_told_at_the_start() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = runtime::server::Server::new(listener).service(quiet()).reflection(b"no descriptor set");
    let refused = server.serve(CancellationToken::default()).await.unwrap_err();
    assert!(matches!(refused, runtime::server::ServeError::Reflection(_)), "{refused:?}");
}
