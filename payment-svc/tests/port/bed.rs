//! A test bed: a fresh database, the service in process on a free port, a client, and the peer it reports to.
//!
//! [`Bed::end`] checks what must hold after every test: our book and the provider's agree to the last penny.

use crate::orders::Orders;
use clap::Parser;
use payment_svc::{Config, ServeError};
use proto::{
    money::v1::Money,
    payment::v1::{
        CancelPaymentRequest, ChargeRequest, GetPaymentRequest, Payment, RefundRequest,
        payment_service_client::PaymentServiceClient,
    },
    reason::DOMAIN,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use std::time::Duration;
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use uuid::Uuid;

/// The time limit of provider calls in tests.
const PROVIDER_TIMEOUT_MS: u64 = 500;
/// How long a condition may take to come true.
const WAIT_LIMIT: Duration = Duration::from_secs(15);

pub(crate) type Client = PaymentServiceClient<runtime::client::Client>;

pub(crate) struct Bed {
    pub(crate) client: Client,
    address: String,
    pub(crate) orders: Orders,
    pub(crate) db: PgPool,
    database: String,
    server: JoinHandle<Result<(), ServeError>>,
    shutdown: CancellationToken,
}

impl Bed {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let orders = Orders::default();
        orders.serve(listener);
        Self::start_reporting_to(&url, orders, &[]).await
    }

    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        Self::start_reporting_to("http://127.0.0.1:1", Orders::default(), flags).await
    }

    pub(crate) async fn start_reporting_to(order_url: &str, orders: Orders, flags: &[&str]) -> Self {
        let admin = admin_url();
        let database = format!("payment_svc_{}", Uuid::new_v4().simple());
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("create database {database}")))
            .execute(&mut connection)
            .await
            .unwrap();
        let url = with_database(&admin, &database);

        let (database_url, order_url) = (format!("--database-url={url}"), format!("--order-url={order_url}"));
        let limit = format!("--provider-timeout-ms={PROVIDER_TIMEOUT_MS}");
        let arguments = ["payment-svc", &database_url, &order_url, &limit];
        let config = Config::parse_from(arguments.iter().chain(flags));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(payment_svc::serve(config, listener, shutdown.clone()));
        let client = PaymentServiceClient::new(runtime::client::connect(&address).unwrap());
        let bed = Self {
            client,
            address,
            orders,
            db: PgPool::connect_lazy(&url).unwrap(),
            database,
            server,
            shutdown,
        };
        until("serving", async || {
            bed.get("nobody").await.is_err_and(|status| status.code() == Code::NotFound)
        })
        .await;
        bed
    }

    /// A client that sends the headers it is given.
    pub(crate) async fn plain_client(&self) -> PaymentServiceClient<tonic::transport::Channel> {
        PaymentServiceClient::connect(self.address.clone()).await.unwrap()
    }

    /// Stops the service, checks the books, and removes the database.
    pub(crate) async fn end(self) {
        let wrong: Vec<String> = sqlx::query_scalar(
            "select concat_ws(' ', p.payment_id, p.state, p.captured, p.refunded, 'the provider:', c.status, c.refunded)
             from payment.payments p left join payment_simulator.charges c on c.charge_key = p.payment_id
             where p.state <> 'PROCESSING' and p.refund_pending = 0
               and ((p.captured > 0) is distinct from (c.status = 'CAPTURED') or p.refunded is distinct from c.refunded)",
        )
        .fetch_all(&self.db)
        .await
        .unwrap();
        assert!(wrong.is_empty(), "the books disagree: {wrong:#?}");
        self.shutdown.cancel();
        self.server.await.unwrap().unwrap();
        self.db.close().await;
        let mut connection = PgConnection::connect(&admin_url()).await.unwrap();
        let drop = format!("drop database {} with (force)", self.database);
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await.unwrap();
    }

    pub(crate) async fn charge(&self, payment: &str, token: &str) -> Result<Payment, Status> {
        self.send(charge(payment, token)).await
    }

    pub(crate) async fn send(&self, request: ChargeRequest) -> Result<Payment, Status> {
        self.client.clone().charge(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn get(&self, payment: &str) -> Result<Payment, Status> {
        let request = GetPaymentRequest { payment_id: payment.into() };
        self.client.clone().get_payment(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn cancel(&self, scope: &str) -> Result<Vec<Payment>, Status> {
        let request = CancelPaymentRequest { scope: scope.into(), keep_payment_id: String::new() };
        self.client.clone().cancel_payment(request).await.map(|answer| answer.into_inner().payments)
    }

    pub(crate) async fn cancel_but(&self, scope: &str, keep: &str) -> Result<Vec<Payment>, Status> {
        let request = CancelPaymentRequest { scope: scope.into(), keep_payment_id: keep.into() };
        self.client.clone().cancel_payment(request).await.map(|answer| answer.into_inner().payments)
    }

    pub(crate) async fn refund(
        &self,
        payment: &str,
        id: &str,
        amount: Option<i64>,
    ) -> Result<Payment, Status> {
        let request = RefundRequest {
            payment_id: payment.into(),
            request_id: id.into(),
            amount: amount.map(|minor_units| Money { currency: "GBP".into(), minor_units }),
        };
        self.client.clone().refund(request).await.map(tonic::Response::into_inner)
    }

    /// One number out of the database.
    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&self.db).await.unwrap()
    }
}

/// A charge of 100 in scope `<payment>.scope`, with order `order-<payment>` as its reference.
pub(crate) fn charge(payment: &str, token: &str) -> ChargeRequest {
    ChargeRequest {
        payment_id: payment.into(),
        scope: format!("{payment}.scope"),
        reference: format!("order-{payment}"),
        amount: Some(Money { currency: "GBP".into(), minor_units: 100 }),
        payment_token: token.into(),
        report: 0,
    }
}

/// State, captured, refunded.
pub(crate) fn shape(payment: &Payment) -> (&'static str, i64, i64) {
    let units = |money: &Option<Money>| money.as_ref().map_or(-1, |money| money.minor_units);
    (payment.state().as_str_name(), units(&payment.captured), units(&payment.refunded))
}

/// Code and reason of an error.
pub(crate) fn reason(status: &Status) -> (Code, String) {
    let reason = runtime::status::reason(status, DOMAIN).map(|found| found.reason);
    (status.code(), reason.unwrap_or_else(|| status.message().to_owned()))
}

/// Asks until the answer is yes, for as long as anything may take.
pub(crate) async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let give_up_at = Instant::now() + WAIT_LIMIT;
    while !check().await {
        assert!(Instant::now() < give_up_at, "never: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn admin_url() -> String {
    std::env::var("TEST_DATABASE_URL").expect("TEST_DATABASE_URL names a Postgres for test databases")
}

fn with_database(admin: &str, database: &str) -> String {
    let (server, _) = admin.rsplit_once('/').expect("a URL with a database");
    format!("{server}/{database}")
}
