//! Compare-and-append: movements that continue the chain, and all that follows from them, in one transaction.

use std::collections::BTreeMap;

use sqlx::{Connection, PgConnection};

use super::{Ledger, sql};
use crate::{
    movement::{self, Break, Change, Kind, Movement},
    partition::{Generation, Head, Nonce, PartitionId, Seq},
    reservation::{CallerId, State},
    sku::Sku,
};

/// Why movements were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// They are void: the partition is doubtful.
    #[error(transparent)]
    Broken(#[from] Break),
    /// The database failed. Whether they were appended is unknown: ask again, the chain tells.
    #[error("ledger: {0}")]
    Store(sqlx::Error),
}

impl From<sqlx::Error> for AppendError {
    /// A violated constraint means that the movements cannot all be true; anything else is the database's trouble.
    fn from(error: sqlx::Error) -> Self {
        let violated = error.as_database_error().is_some_and(|database| {
            database.code().is_some_and(|code| code.starts_with("23") || code.starts_with("22"))
        });
        if violated {
            tracing::error!(%error, "the ledger's constraints refuse a movement");
            return Self::Broken(Break::Contradiction("a constraint of the ledger"));
        }
        Self::Store(error)
    }
}

impl Ledger {
    /// Appends what continues the chain and returns where it then ends. Movements that are there already are passed
    /// over: repeating an append whose commit is unknown is how to learn what became of it.
    pub async fn append(&self, movements: &[Movement]) -> Result<Head, AppendError> {
        let mut connection = self.appender.acquire().await?;
        let mut transaction = connection.begin().await?;
        let (generation, seq, chain): (i64, i64, String) =
            sqlx::query_as(sql::PARTITION_LOCK).bind(self.partition.0).fetch_one(&mut *transaction).await?;
        let head = Head { generation: Generation(generation), seq: Seq(seq), chain: Nonce(chain) };
        let new = movement::continuation(&head, movements)?;
        let Some(last) = new.last() else {
            transaction.rollback().await?;
            return Ok(head);
        };
        let effects = Effects::of(new)?;
        let to = Place { partition: self.partition, generation: head.generation };
        to.movements(&mut transaction, new).await?;
        to.new_reservations(&mut transaction, &effects).await?;
        to.changed_reservations(&mut transaction, &effects).await?;
        to.balances(&mut transaction, &effects).await?;
        sqlx::query(sql::PARTITION_ADVANCE)
            .bind(self.partition.0)
            .bind(last.position.seq.0)
            .bind(&last.nonce.0)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Head { generation: head.generation, seq: last.position.seq, chain: last.nonce.clone() })
    }
}

/// What a run of movements comes to: one row per reservation and per SKU, however often the run touches it.
#[derive(Default)]
struct Effects<'a> {
    reservations: BTreeMap<&'a CallerId, Reservation<'a>>,
    balances: BTreeMap<&'a Sku, Delta>,
    new_skus: Vec<&'a str>,
}

struct Reservation<'a> {
    first: &'a Change,
    opened_seq: Seq,
    state: State,
    seq: Seq,
    at_ms: i64,
}

#[derive(Default)]
struct Delta {
    received: i64,
    held: i64,
    sold: i64,
    seq: i64,
}

impl<'a> Effects<'a> {
    fn of(movements: &'a [Movement]) -> Result<Self, Break> {
        let mut effects = Self::default();
        for movement in movements {
            match &movement.kind {
                Kind::Reservation(change) => effects.reservation(movement, change)?,
                Kind::Stock(change) => {
                    let delta = effects.balances.entry(&change.sku).or_default();
                    delta.received += change.delta;
                    delta.seq = movement.position.seq.0;
                    if change.act == movement::Act::Receive {
                        effects.new_skus.push(change.sku.as_str());
                    }
                }
            }
        }
        effects.new_skus.sort_unstable();
        effects.new_skus.dedup();
        Ok(effects)
    }

    fn reservation(&mut self, movement: &'a Movement, change: &'a Change) -> Result<(), Break> {
        let seq = movement.position.seq;
        let row = self.reservations.entry(&change.id).or_insert_with(|| Reservation {
            first: change,
            opened_seq: seq,
            state: change.to,
            seq,
            at_ms: movement.at_ms,
        });
        if row.seq != seq && change.from != Some(row.state) {
            return Err(Break::Contradiction("a reservation's state before"));
        }
        (row.state, row.seq, row.at_ms) = (change.to, seq, movement.at_ms);
        for line in &change.lines {
            let delta = self.balances.entry(&line.sku).or_default();
            let units = line.units.get();
            delta.held += if change.to == State::Held { units } else { -units };
            delta.sold += if change.to == State::Confirmed { units } else { 0 };
            delta.seq = seq.0;
        }
        Ok(())
    }
}

/// Where rows are written.
struct Place {
    partition: PartitionId,
    generation: Generation,
}

impl Place {
    async fn movements(
        &self,
        connection: &mut PgConnection,
        movements: &[Movement],
    ) -> Result<(), AppendError> {
        let rows: Vec<Row<'_>> = movements.iter().map(Row::of).collect();
        macro_rules! column {
            ($name:ident) => {
                rows.iter().map(|row| row.$name.clone()).collect::<Vec<_>>()
            };
        }
        let done = sqlx::query(sql::MOVEMENTS_APPEND)
            .bind(self.partition.0)
            .bind(self.generation.0)
            .bind(column!(seq))
            .bind(column!(kind))
            .bind(column!(reservation_id))
            .bind(column!(request_id))
            .bind(column!(from_state))
            .bind(column!(skus))
            .bind(column!(quantities))
            .bind(column!(fingerprint))
            .bind(column!(customer_id))
            .bind(column!(expires_ms))
            .bind(column!(reason))
            .bind(column!(counters))
            .bind(column!(nonce))
            .bind(column!(prev))
            .bind(column!(at_ms))
            .execute(connection)
            .await?;
        all(done.rows_affected(), movements.len(), "a request id that was used before")
    }

    async fn new_reservations(
        &self,
        connection: &mut PgConnection,
        effects: &Effects<'_>,
    ) -> Result<(), AppendError> {
        let rows: Vec<_> = effects.reservations.iter().filter(|(_, row)| row.first.from.is_none()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let done = sqlx::query(sql::RESERVATIONS_INSERT)
            .bind(self.partition.0)
            .bind(self.generation.0)
            .bind(rows.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|(_, row)| row.state.name()).collect::<Vec<_>>())
            .bind(rows.iter().map(|(_, row)| row.first.fingerprint.as_deref()).collect::<Vec<_>>())
            .bind(
                rows.iter()
                    .map(|(_, row)| row.first.customer.as_ref().map(CallerId::as_str))
                    .collect::<Vec<_>>(),
            )
            .bind(rows.iter().map(|(_, row)| row.opened_seq.0).collect::<Vec<_>>())
            .bind(rows.iter().map(|(_, row)| row.seq.0).collect::<Vec<_>>())
            .bind(rows.iter().map(|(_, row)| row.first.expires_ms).collect::<Vec<_>>())
            .bind(rows.iter().map(|(_, row)| row.at_ms).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        all(done.rows_affected(), rows.len(), "a reservation id that was used before")
    }

    async fn changed_reservations(
        &self,
        connection: &mut PgConnection,
        effects: &Effects<'_>,
    ) -> Result<(), AppendError> {
        let rows: Vec<_> =
            effects.reservations.iter().filter_map(|(id, row)| Some((id, row.first.from?, row))).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let done = sqlx::query(sql::RESERVATIONS_UPDATE)
            .bind(self.partition.0)
            .bind(self.generation.0)
            .bind(rows.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|(_, from, _)| from.name()).collect::<Vec<_>>())
            .bind(rows.iter().map(|(.., row)| row.state.name()).collect::<Vec<_>>())
            .bind(rows.iter().map(|(.., row)| row.seq.0).collect::<Vec<_>>())
            .bind(rows.iter().map(|(.., row)| row.at_ms).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        all(done.rows_affected(), rows.len(), "a reservation's state before")
    }

    async fn balances(
        &self,
        connection: &mut PgConnection,
        effects: &Effects<'_>,
    ) -> Result<(), AppendError> {
        if effects.balances.is_empty() {
            return Ok(());
        }
        if !effects.new_skus.is_empty() {
            sqlx::query(sql::BALANCES_INSERT)
                .bind(self.partition.0)
                .bind(&effects.new_skus)
                .execute(&mut *connection)
                .await?;
        }
        let deltas = &effects.balances;
        let done = sqlx::query(sql::BALANCES_UPDATE)
            .bind(self.partition.0)
            .bind(deltas.keys().map(|sku| sku.as_str()).collect::<Vec<_>>())
            .bind(deltas.values().map(|delta| delta.received).collect::<Vec<_>>())
            .bind(deltas.values().map(|delta| delta.held).collect::<Vec<_>>())
            .bind(deltas.values().map(|delta| delta.sold).collect::<Vec<_>>())
            .bind(deltas.values().map(|delta| delta.seq).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        all(done.rows_affected(), deltas.len(), "a SKU that was never received")
    }
}

fn all(rows: u64, expected: usize, what: &'static str) -> Result<(), AppendError> {
    if usize::try_from(rows) == Ok(expected) { Ok(()) } else { Err(Break::Contradiction(what).into()) }
}

/// A movement as its row; lines as texts.
struct Row<'a> {
    seq: i64,
    kind: &'static str,
    reservation_id: Option<&'a str>,
    request_id: Option<&'a str>,
    from_state: Option<&'static str>,
    skus: String,
    quantities: String,
    fingerprint: Option<&'a str>,
    customer_id: Option<&'a str>,
    expires_ms: Option<i64>,
    reason: Option<&'a str>,
    counters: Option<String>,
    nonce: &'a str,
    prev: &'a str,
    at_ms: i64,
}

impl<'a> Row<'a> {
    fn of(movement: &'a Movement) -> Self {
        let mut row = Row {
            seq: movement.position.seq.0,
            kind: movement.kind.name(),
            reservation_id: None,
            request_id: None,
            from_state: None,
            skus: String::new(),
            quantities: String::new(),
            fingerprint: None,
            customer_id: None,
            expires_ms: None,
            reason: None,
            counters: None,
            nonce: &movement.nonce.0,
            prev: &movement.prev.0,
            at_ms: movement.at_ms,
        };
        match &movement.kind {
            Kind::Reservation(change) => {
                row.reservation_id = Some(change.id.as_str());
                row.from_state = change.from.map(State::name);
                row.skus = joined(change.lines.iter().map(|line| line.sku.as_str()));
                row.quantities = joined(change.lines.iter().map(|line| line.units.get()));
                row.fingerprint = change.fingerprint.as_deref();
                row.customer_id = change.customer.as_ref().map(CallerId::as_str);
                row.expires_ms = change.expires_ms;
            }
            Kind::Stock(change) => {
                row.request_id = Some(change.request_id.as_str());
                change.sku.as_str().clone_into(&mut row.skus);
                row.quantities = change.delta.to_string();
                row.fingerprint = Some(&change.fingerprint);
                row.reason = Some(&change.reason);
                row.counters = Some(joined(change.counters));
            }
        }
        row
    }
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join("\n")
}
