//! Reading the shop's untidy file into orders and returns, as a shop would, and keeping count of what was left out.
//!
//! Rules: SKUs to upper case; lines of a SKU merged into one, at the price of its first line; rows with a fee code,
//! without a positive quantity or without a positive price dropped; invoices beginning with C are returns to stock,
//! those beginning with A are refused; no customer means a guest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use csv::ByteRecord;
use flate2::read::GzDecoder;

use super::price::pence;

/// One merged line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopLine {
    /// Upper case.
    pub sku: String,
    /// Units, at least 1.
    pub quantity: i64,
    /// Price of one unit in pence, at least 1.
    pub price_pence: i64,
}

/// One invoice that is an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopOrder {
    /// The invoice number, six digits.
    pub invoice: String,
    /// The same as a number: the payment plan goes by it.
    pub number: u64,
    /// When it was written, as the file has it: sorts as text.
    pub at: String,
    /// Absent for a guest.
    pub customer: Option<String>,
    /// One line per SKU, in the order they first appear.
    pub lines: Vec<ShopLine>,
}

/// One invoice that brings goods back. It names no original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopReturn {
    /// The invoice number with its C.
    pub invoice: String,
    /// When it was written.
    pub at: String,
    /// Units per SKU.
    pub units: BTreeMap<String, i64>,
}

/// Why a row was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// Its invoice begins with A: an adjustment of the books.
    RefusedInvoice,
    /// Its code is a fee, a voucher or a correction, not goods.
    FeeCode,
    /// No goods move in its direction.
    Quantity,
    /// It has no price.
    Price,
    /// A field cannot be read.
    Unreadable,
}

/// What the file came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShopFile {
    /// In time order.
    pub orders: Vec<ShopOrder>,
    /// In time order.
    pub returns: Vec<ShopReturn>,
    /// Rows read.
    pub rows: usize,
    /// Rows never sent, by reason.
    pub left_out: BTreeMap<LeftOut, usize>,
    /// Rows that became part of an earlier line of their SKU.
    pub merged: usize,
    /// Those among them whose price was another one.
    pub merged_at_other_price: usize,
}

impl ShopFile {
    /// Rows never sent.
    pub fn refused_rows(&self) -> usize {
        self.left_out.values().sum()
    }

    /// Lines of all orders.
    pub fn lines(&self) -> usize {
        self.orders.iter().map(|order| order.lines.len()).sum()
    }
}

/// Codes that stand for postage, fees, discounts, samples, vouchers and corrections.
const FEE_CODES: [&str; 11] =
    ["AMAZONFEE", "B", "BANK CHARGES", "C2", "CRUK", "D", "DOT", "M", "PADS", "POST", "S"];
/// Gift vouchers: `GIFT_0001_20`.
const VOUCHERS: &str = "GIFT_";

fn is_fee(sku: &str) -> bool {
    FEE_CODES.contains(&sku) || sku.starts_with(VOUCHERS)
}

/// Reads a file, packed if its name ends in `.gz`.
pub fn read_file(path: &Path) -> Result<ShopFile> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let packed = path.extension().is_some_and(|extension| extension == "gz");
    if packed { read(GzDecoder::new(file)) } else { read(file) }
}

/// Reads rows from `source`.
pub fn read(source: impl Read) -> Result<ShopFile> {
    let mut reader = csv::Reader::from_reader(source);
    let columns = Columns::of(reader.byte_headers()?)?;
    let mut desk = Desk::default();
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record)? {
        desk.take(&columns.row(&record));
    }
    Ok(desk.close())
}

/// Where the columns are: the day's file has one more than the year's.
struct Columns {
    invoice: usize,
    sku: usize,
    quantity: usize,
    at: usize,
    price: usize,
    customer: usize,
}

struct Row {
    invoice: String,
    sku: String,
    quantity: String,
    at: String,
    price: String,
    customer: String,
}

impl Columns {
    fn of(headers: &ByteRecord) -> Result<Self> {
        let find = |name: &str| {
            let at = headers.iter().position(|header| header == name.as_bytes());
            at.with_context(|| format!("no column {name}"))
        };
        Ok(Self {
            invoice: find("InvoiceNo")?,
            sku: find("StockCode")?,
            quantity: find("Quantity")?,
            at: find("InvoiceDate")?,
            price: find("UnitPrice")?,
            customer: find("CustomerID")?,
        })
    }

    /// The descriptions are not all UTF-8; the fields that count are ASCII, and what is not becomes unreadable.
    fn row(&self, record: &ByteRecord) -> Row {
        let field = |at: usize| String::from_utf8_lossy(record.get(at).unwrap_or_default()).trim().to_owned();
        Row {
            invoice: field(self.invoice),
            sku: field(self.sku).to_uppercase(),
            quantity: field(self.quantity),
            at: field(self.at),
            price: field(self.price),
            customer: field(self.customer),
        }
    }
}

/// Where invoices are put together.
#[derive(Default)]
struct Desk {
    file: ShopFile,
    orders: BTreeMap<String, ShopOrder>,
    returns: BTreeMap<String, ShopReturn>,
}

impl Desk {
    fn take(&mut self, row: &Row) {
        self.file.rows += 1;
        if let Err(why) = self.sort(row) {
            *self.file.left_out.entry(why).or_default() += 1;
        }
    }

    fn sort(&mut self, row: &Row) -> Result<(), LeftOut> {
        if row.invoice.starts_with('A') {
            return Err(LeftOut::RefusedInvoice);
        }
        if is_fee(&row.sku) {
            return Err(LeftOut::FeeCode);
        }
        let quantity: i64 = row.quantity.parse().map_err(|_| LeftOut::Unreadable)?;
        let price_pence = pence(&row.price).ok_or(LeftOut::Unreadable)?;
        if row.sku.is_empty() || !row.sku.is_ascii() {
            return Err(LeftOut::Unreadable);
        }
        if let Some(number) = row.invoice.strip_prefix('C') {
            number.parse::<u64>().map_err(|_| LeftOut::Unreadable)?;
            return self.bring_back(row, positive(-quantity, LeftOut::Quantity)?, price_pence);
        }
        let number = row.invoice.parse().map_err(|_| LeftOut::Unreadable)?;
        let line = ShopLine {
            sku: row.sku.clone(),
            quantity: positive(quantity, LeftOut::Quantity)?,
            price_pence: positive(price_pence, LeftOut::Price)?,
        };
        self.order(row, number, line);
        Ok(())
    }

    fn bring_back(&mut self, row: &Row, quantity: i64, price_pence: i64) -> Result<(), LeftOut> {
        positive(price_pence, LeftOut::Price)?;
        let back = self.returns.entry(row.invoice.clone()).or_insert_with(|| ShopReturn {
            invoice: row.invoice.clone(),
            at: row.at.clone(),
            units: BTreeMap::new(),
        });
        let units = back.units.entry(row.sku.clone()).or_default();
        self.file.merged += usize::from(*units > 0);
        *units += quantity;
        Ok(())
    }

    fn order(&mut self, row: &Row, number: u64, line: ShopLine) {
        let order = self.orders.entry(row.invoice.clone()).or_insert_with(|| ShopOrder {
            invoice: row.invoice.clone(),
            number,
            at: row.at.clone(),
            customer: customer(&row.customer),
            lines: Vec::new(),
        });
        match order.lines.iter_mut().find(|known| known.sku == line.sku) {
            None => order.lines.push(line),
            Some(known) => {
                known.quantity += line.quantity;
                self.file.merged += 1;
                self.file.merged_at_other_price += usize::from(known.price_pence != line.price_pence);
            }
        }
    }

    fn close(self) -> ShopFile {
        let mut file = self.file;
        file.orders = self.orders.into_values().collect();
        file.returns = self.returns.into_values().collect();
        file.orders.sort_by(|a, b| (&a.at, &a.invoice).cmp(&(&b.at, &b.invoice)));
        file.returns.sort_by(|a, b| (&a.at, &a.invoice).cmp(&(&b.at, &b.invoice)));
        file
    }
}

fn positive(number: i64, otherwise: LeftOut) -> Result<i64, LeftOut> {
    if number > 0 { Ok(number) } else { Err(otherwise) }
}

/// The day's file went through a spreadsheet: 14075 is written 14075.0 there.
fn customer(text: &str) -> Option<String> {
    let text = text.strip_suffix(".0").unwrap_or(text);
    if text.is_empty() { None } else { Some(text.to_owned()) }
}

#[cfg(test)]
mod tests;
