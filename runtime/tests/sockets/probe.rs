//! A gRPC service whose methods are closures, written without generated code: the runtime knows no contract.

use futures::{Stream, future::BoxFuture, stream::BoxStream};
use http::uri::PathAndQuery;
use runtime::{client::Client, server::Server};
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    server::{Grpc, NamedService, ServerStreamingService, UnaryService},
};
use tonic_health::pb::{HealthCheckRequest as Question, HealthCheckResponse as Answer};
use tonic_prost::ProstCodec;
use tower::Service;

type Unary = Arc<dyn Fn(Question) -> BoxFuture<'static, Result<Answer, Status>> + Send + Sync>;
type Streamed = Arc<dyn Fn(Question) -> BoxStream<'static, Result<Answer, Status>> + Send + Sync>;

/// `probe.v1.Probe` with the methods `Ask` and `Listen`.
#[derive(Clone)]
pub(crate) struct Probe {
    ask: Unary,
    listen: Streamed,
}

impl NamedService for Probe {
    const NAME: &'static str = "probe.v1.Probe";
}

impl Probe {
    pub(crate) fn ask<F, Fut>(ask: F) -> Self
    where
        F: Fn(Question) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, Status>> + Send + 'static,
    {
        Self {
            ask: Arc::new(move |question| Box::pin(ask(question))),
            listen: Arc::new(|_| Box::pin(futures::stream::empty())),
        }
    }

    pub(crate) fn listen<F, S>(listen: F) -> Self
    where
        F: Fn(Question) -> S + Send + Sync + 'static,
        S: Stream<Item = Result<Answer, Status>> + Send + 'static,
    {
        Self {
            listen: Arc::new(move |question| Box::pin(listen(question))),
            ..Self::ask(|_| async { Ok(answer(0)) })
        }
    }
}

pub(crate) fn answer(status: i32) -> Answer {
    Answer { status }
}

struct Asked(Unary);
impl UnaryService<Question> for Asked {
    type Response = Answer;
    type Future = BoxFuture<'static, Result<Response<Answer>, Status>>;
    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}

struct Listened(Streamed);
impl ServerStreamingService<Question> for Listened {
    type Response = Answer;
    type ResponseStream = BoxStream<'static, Result<Answer, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;
    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let answers = (self.0)(request.into_inner());
        Box::pin(async move { Ok(Response::new(answers)) })
    }
}

impl Service<http::Request<Body>> for Probe {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut grpc = Grpc::new(ProstCodec::<Answer, Question>::default());
        let (ask, listen) = (Asked(self.ask.clone()), Listened(self.listen.clone()));
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/probe.v1.Probe/Ask" => grpc.unary(ask, request).await,
                "/probe.v1.Probe/Listen" => grpc.server_streaming(listen, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// A served [`Server`], and how to end it.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    ended: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(build: impl FnOnce(Server) -> Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = build(Server::new(listener)).serve(shutdown.clone());
        let ended = tokio::spawn(async move { serving.await.unwrap() });
        Self { address, shutdown, ended }
    }

    pub(crate) async fn probe(probe: Probe) -> Self {
        Self::start(|server| server.service(probe)).await
    }

    pub(crate) fn client(&self) -> Client {
        runtime::client::connect(&format!("http://{}", self.address)).unwrap()
    }

    /// Asks it to stop and says how long that took.
    pub(crate) async fn stop(self) -> Duration {
        let asked_at = Instant::now();
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.ended).await.expect("the stop hangs").unwrap();
        asked_at.elapsed()
    }
}

pub(crate) fn plain() -> Request<Question> {
    Request::new(Question::default())
}

pub(crate) fn patient(patience: Duration) -> Request<Question> {
    let mut request = plain();
    request.set_timeout(patience);
    request
}

pub(crate) async fn ask(client: &Client, request: Request<Question>) -> Result<Answer, Status> {
    let mut grpc = tonic::client::Grpc::new(client.clone());
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/probe.v1.Probe/Ask");
    let codec = ProstCodec::<Question, Answer>::default();
    grpc.unary(request, path, codec).await.map(Response::into_inner)
}

pub(crate) async fn listen(client: &Client, request: Request<Question>) -> Result<Streaming<Answer>, Status> {
    let mut grpc = tonic::client::Grpc::new(client.clone());
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/probe.v1.Probe/Listen");
    let codec = ProstCodec::<Question, Answer>::default();
    grpc.server_streaming(request, path, codec).await.map(Response::into_inner)
}

/// Waits until `holds` does, for five seconds at most.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let ends_at = Instant::now() + Duration::from_secs(5);
    while !holds().await {
        assert!(Instant::now() < ends_at, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
