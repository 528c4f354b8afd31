//! The ways that order-svc calls through in a linked stack: one proxy each to its database and to its peers.

use anyhow::{Context, Result};

use crate::proxy::{Protocol, Proxy};

/// The proxies of one stack.
#[derive(Debug)]
pub struct Links {
    /// To the orders database.
    pub database: Proxy,
    /// To inventory-svc.
    pub inventory: Proxy,
    /// To payment-svc.
    pub payment: Proxy,
    database_url: String,
}

impl Links {
    /// Starts them; the targets need not be there yet.
    pub async fn start(database_url: &str, inventory_url: &str, payment_url: &str) -> Result<Self> {
        let database = Proxy::start(Protocol::Postgres, server_of(database_url)?).await?;
        let database_url = database_url.replacen(server_of(database_url)?, database.address(), 1);
        let (inventory, payment) = tokio::try_join!(
            Proxy::start(Protocol::Grpc, server_of(inventory_url)?),
            Proxy::start(Protocol::Grpc, server_of(payment_url)?),
        )?;
        Ok(Self { database, inventory, payment, database_url })
    }

    /// What order-svc is told instead of the addresses themselves.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let url = |proxy: &Proxy| format!("http://{}", proxy.address());
        [
            ("DATABASE_URL", self.database_url.clone()),
            ("INVENTORY_URL", url(&self.inventory)),
            ("PAYMENT_URL", url(&self.payment)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Lets everything pass again on all of them, and waits until what was held is answered.
    pub async fn release(&self) -> Result<()> {
        tokio::try_join!(self.database.release(), self.inventory.release(), self.payment.release())?;
        Ok(())
    }
}

/// `host:port` of a URL.
fn server_of(url: &str) -> Result<&str> {
    let server = url.split_once("://").map(|(_, rest)| rest).and_then(|rest| rest.split(['/', '?']).next());
    let server = server.map(|server| server.rsplit_once('@').map_or(server, |(_, server)| server));
    server.filter(|server| server.contains(':')).with_context(|| format!("{url} names no host and port"))
}

#[cfg(test)]
mod tests {
    use super::server_of;

    #[test]
    fn the_server_of_a_url_is_found() {
        for (url, server) in [
            ("postgres://u:p@h:1/d?x=y", Some("h:1")),
            ("http://127.0.0.1:2", Some("127.0.0.1:2")),
            ("postgres:///d?host=/tmp", None),
        ] {
            assert_eq!(server_of(url).ok(), server);
        }
    }
}
