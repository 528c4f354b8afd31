//! The rules on small files, and the two real files' known totals.

use std::path::Path;

use super::*;

const HEADER: &str = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n";

fn file(rows: &str) -> ShopFile {
    read(format!("{HEADER}{rows}").as_bytes()).unwrap()
}

fn totals(name: &str) -> (usize, usize, usize) {
    let file = read_file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(name)).unwrap();
    let sent = file.lines() + file.returns.iter().map(|back| back.units.len()).sum::<usize>();
    assert_eq!(sent + file.merged + file.refused_rows(), file.rows, "every row is sent, merged or left out");
    (file.orders.len(), file.lines(), file.orders.iter().map(|order| order.lines.len()).max().unwrap())
}

#[test]
fn the_day_leaves_126_orders() {
    assert_eq!(totals("online-retail-2011-12-05.csv"), (126, 5_185, 720));
}

#[test]
fn the_year_leaves_19_773_orders() {
    assert_eq!(totals("online-retail.csv.gz"), (19_773, 517_287, 1_106));
}

#[test]
fn case_is_one_sku_and_its_lines_merge_at_the_first_price() {
    let file = file(
        "1,85049E,x,2,2011-12-05 08:00:00,1.25,14075.0,UK\n1,85049e,x,3,2011-12-05 08:00:00,1.3,14075.0,UK\n",
    );
    let line = ShopLine { sku: "85049E".to_owned(), quantity: 5, price_pence: 125 };
    assert_eq!(file.orders[0].lines, [line]);
    assert_eq!(file.orders[0].customer.as_deref(), Some("14075"));
    assert_eq!((file.merged, file.merged_at_other_price), (1, 1));
}

#[test]
fn what_is_left_out_is_counted_by_reason() {
    let file = file(
        "1,POST,x,1,t,18.00,,UK\n1,gift_0001_20,x,1,t,16.67,,UK\n1,1,x,0,t,1,,UK\n1,1,x,-2,t,1,,UK\n\
         1,1,x,1,t,0,,UK\nA1,1,x,1,t,1,,UK\n1,1,x,many,t,1,,UK\nX9,1,x,1,t,1,,UK\n",
    );
    let expected = [
        (LeftOut::RefusedInvoice, 1),
        (LeftOut::FeeCode, 2),
        (LeftOut::Quantity, 2),
        (LeftOut::Price, 1),
        (LeftOut::Unreadable, 2),
    ];
    assert_eq!(file.left_out, BTreeMap::from(expected));
    assert_eq!((file.orders.len(), file.refused_rows(), file.rows), (0, 8, 8));
}

#[test]
fn an_invoice_with_a_c_brings_units_back() {
    let file = file("C7,22a,x,-2,t,1.00,5.0,UK\nC7,22A,x,-1,t,1.00,5.0,UK\nC7,M,x,-1,t,1.00,5.0,UK\n");
    assert_eq!(file.returns[0].units, BTreeMap::from([("22A".to_owned(), 3)]));
    assert_eq!(file.left_out, BTreeMap::from([(LeftOut::FeeCode, 1)]));
}

#[test]
fn orders_come_in_time_order_and_guests_have_no_customer() {
    let file = file("2,1,x,1,2011-12-05 09:00:00,1,,UK\n3,1,x,1,2011-12-05 08:00:00,1,7.0,UK\n");
    let seen: Vec<_> = file.orders.iter().map(|order| (order.number, order.customer.as_deref())).collect();
    assert_eq!(seen, [(3, Some("7")), (2, None)]);
}
