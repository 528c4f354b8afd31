//! A whole Holdfast of its own for one test: stores, three services, a trace sink when asked for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proto::inventory::v1::{GetStockRequest, Stock};
use proto::orders::v1::{GetOrderRequest, Order, order};

use crate::clients::Clients;
use crate::deadline::eventually;
use crate::links::Links;
use crate::ports::Port;
use crate::postgres::Postgres;
use crate::requests::receive;
use crate::service::{Part, Service};
use crate::sink::Sink;
use crate::stores::{Layout, Stores};

/// Which services of a stack are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Started {
    All,
    Only(Part),
}

/// What a stack is to be like.
#[derive(Debug, Clone)]
pub struct Plan {
    started: Started,
    traced: bool,
    linked: bool,
    layout: Layout,
    postgres: Option<Postgres>,
    env: Vec<(Part, String, String)>,
}

/// A running Holdfast. Dropping it ends every process and drops every database.
#[derive(Debug)]
pub struct Stack {
    // Fields drop in this order: processes before the stores under them.
    /// order-svc.
    pub order: Service,
    /// inventory-svc.
    pub inventory: Service,
    /// payment-svc.
    pub payment: Service,
    /// Clients of all of them.
    pub clients: Clients,
    /// Where they export their spans; only in traced stacks.
    sink: Option<Sink>,
    /// What order-svc calls through; only in linked stacks.
    links: Option<Links>,
    /// What they keep.
    pub stores: Stores,
    plan: Plan,
}

impl Plan {
    /// All services, no tracing.
    pub fn all() -> Self {
        Self {
            started: Started::All,
            traced: false,
            linked: false,
            layout: Layout::Shared,
            postgres: None,
            env: Vec::new(),
        }
    }

    /// One service alone: its peers have addresses where nobody listens.
    pub fn only(part: Part) -> Self {
        Self { started: Started::Only(part), ..Self::all() }
    }

    /// Every span goes to the stack's sink.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.traced = true;
        self
    }

    /// order-svc reaches its database and the other services through proxies: [`Stack::links`].
    #[must_use]
    pub fn linked(mut self) -> Self {
        self.linked = true;
        self
    }

    /// Databases in this server instead of the one that all tests share.
    #[must_use]
    pub fn on(mut self, postgres: &Postgres) -> Self {
        self.postgres = Some(postgres.clone());
        self
    }

    /// A database for each service.
    #[must_use]
    pub fn own_databases(mut self) -> Self {
        self.layout = Layout::Own;
        self
    }

    /// One more environment variable for a service.
    #[must_use]
    pub fn env(mut self, part: Part, name: &str, value: &str) -> Self {
        self.env.push((part, name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits until what is started serves.
    pub async fn start(self) -> Result<Stack> {
        // On the heap: every test carries this future in its own.
        Box::pin(self.assemble()).await
    }

    async fn assemble(self) -> Result<Stack> {
        let postgres = self.postgres.clone().map_or_else(Postgres::find, Ok)?;
        let stores = Stores::create(postgres, self.layout).await?;
        let sink = if self.traced { Some(Sink::start().await?) } else { None };
        let ports = Ports { order: Port::claim()?, inventory: Port::claim()?, payment: Port::claim()? };
        let urls = Urls::of(&ports);
        let links = if self.linked {
            Some(Links::start(&stores.orders.url, &urls.inventory, &urls.payment).await?)
        } else {
            None
        };
        let service = |part, port| {
            let mut env = environment(part, &stores, &urls, sink.as_ref(), &self);
            if let (Part::Order, Some(links)) = (part, &links) {
                env.extend(links.environment());
            }
            Service::new(part, port, stores.folder(), env)
        };
        let mut order = service(Part::Order, ports.order);
        let mut inventory = service(Part::Inventory, ports.inventory);
        let mut payment = service(Part::Payment, ports.payment);
        let wanted = |part| matches!(self.started, Started::All) || self.started == Started::Only(part);
        tokio::try_join!(
            start_if(wanted(Part::Order), &mut order),
            start_if(wanted(Part::Inventory), &mut inventory),
            start_if(wanted(Part::Payment), &mut payment),
        )?;
        let clients = Clients::connect(&urls.order, &urls.inventory, &urls.payment)?;
        Ok(Stack { order, inventory, payment, clients, sink, links, stores, plan: self })
    }
}

impl Stack {
    /// All services, no tracing.
    pub async fn start() -> Result<Self> {
        Plan::all().start().await
    }

    /// inventory-svc alone.
    pub async fn stock() -> Result<Self> {
        Plan::only(Part::Inventory).start().await
    }

    /// payment-svc alone.
    pub async fn payments() -> Result<Self> {
        Plan::only(Part::Payment).start().await
    }

    /// One more process of a service, on the same stores and past all proxies. Not started yet.
    pub fn another(&self, part: Part) -> Result<Service> {
        let urls =
            Urls { order: self.order.url(), inventory: self.inventory.url(), payment: self.payment.url() };
        let env = environment(part, &self.stores, &urls, self.sink.as_ref(), &self.plan);
        Ok(Service::new(part, Port::claim()?, self.stores.folder(), env))
    }

    /// The trace sink of a traced stack.
    pub fn sink(&self) -> Result<&Sink> {
        self.sink.as_ref().context("this stack is not traced")
    }

    /// The proxies of a linked stack.
    pub fn links(&self) -> Result<&Links> {
        self.links.as_ref().context("this stack is not linked")
    }

    /// Receives `quantity` units of `sku`, once per stack and SKU.
    pub async fn receive(&self, sku: &str, quantity: i64) -> Result<()> {
        let request = receive(&format!("receive.{}", sku.replace(' ', "_")), sku, quantity);
        self.clients.stock.clone().receive_stock(request).await?;
        Ok(())
    }

    /// The counters of a SKU.
    pub async fn stock_of(&self, sku: &str) -> Result<Stock> {
        let request = GetStockRequest { sku: sku.to_owned() };
        Ok(self.clients.inventory.clone().get_stock(request).await?.into_inner())
    }

    /// `(available, held, sold)` of a SKU.
    pub async fn counters(&self, sku: &str) -> Result<(i64, i64, i64)> {
        let stock = self.stock_of(sku).await?;
        Ok((stock.available, stock.held, stock.sold))
    }

    /// An order as it stands.
    pub async fn order_of(&self, order_id: &str) -> Result<Order> {
        let request = GetOrderRequest { order_id: order_id.to_owned() };
        Ok(self.clients.orders.clone().get_order(request).await?.into_inner())
    }

    /// Waits until an order has ended.
    pub async fn ended(&self, order_id: &str, within: Duration) -> Result<Order> {
        eventually(&format!("order {order_id} ends"), within, async || {
            let order = self.order_of(order_id).await?;
            ensure!(has_ended(order.state()), "it is {:?}", order.state());
            Ok(order)
        })
        .await
    }
}

/// Whether an order in this state will not move by itself again.
pub fn has_ended(state: order::State) -> bool {
    matches!(state, order::State::Confirmed | order::State::Cancelled | order::State::Returned)
}

struct Ports {
    order: Port,
    inventory: Port,
    payment: Port,
}

struct Urls {
    order: String,
    inventory: String,
    payment: String,
}

impl Urls {
    fn of(ports: &Ports) -> Self {
        let url = |port: &Port| format!("http://{}", port.address());
        Self { order: url(&ports.order), inventory: url(&ports.inventory), payment: url(&ports.payment) }
    }
}

async fn start_if(wanted: bool, service: &mut Service) -> Result<()> {
    if wanted { service.start().await } else { Ok(()) }
}

fn environment(
    part: Part,
    stores: &Stores,
    urls: &Urls,
    sink: Option<&Sink>,
    plan: &Plan,
) -> Vec<(String, String)> {
    let mut env: Vec<(&str, String)> = match part {
        Part::Order => vec![
            ("DATABASE_URL", stores.orders.url.clone()),
            ("INVENTORY_URL", urls.inventory.clone()),
            ("PAYMENT_URL", urls.payment.clone()),
        ],
        Part::Inventory => {
            vec![("DATABASE_URL", stores.inventory.url.clone()), ("REDIS_URL", stores.redis.url())]
        }
        Part::Payment => {
            vec![("DATABASE_URL", stores.payment.url.clone()), ("ORDER_URL", urls.order.clone())]
        }
    };
    if let Some(sink) = sink {
        env.push(("OTEL_EXPORTER_OTLP_ENDPOINT", sink.endpoint().to_owned()));
        env.push(("HOLDFAST_TRACE_RATIO", "1.0".to_owned()));
        // Spans leave soon after they end, so a test waits for them a moment instead of seconds.
        env.push(("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()));
    }
    let extra = plan.env.iter().filter(|(of, _, _)| *of == part);
    let extra = extra.map(|(_, name, value)| (name.clone(), value.clone()));
    env.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(extra).collect()
}
