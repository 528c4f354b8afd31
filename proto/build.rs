//! Compiles the contract without protoc: protox parses, prost and tonic generate.
//!
//! The descriptor set is written as protox encoded it, so that extensions (the HTTP annotations) survive for
//! reflection and the gateway; a round trip through `prost_types` would drop them.

use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 5] = [
    "money/v1/money.proto",
    "orders/v1/orders.proto",
    "orders/v1/saga_service.proto",
    "inventory/v1/inventory.proto",
    "payment/v1/payment.proto",
];
/// Rich errors must be resolvable by transcoders, so their descriptors travel with ours.
const THIRD_PARTY: [&str; 2] =
    ["third_party/google/rpc/status.proto", "third_party/google/rpc/error_details.proto"];
/// Third party first: a file is named after the first folder it is found in.
const INCLUDES: [&str; 2] = ["third_party", "."];

fn main() -> Result<(), Box<dyn Error>> {
    for folder in ["money", "orders", "inventory", "payment", "third_party"] {
        println!("cargo:rerun-if-changed={folder}");
    }
    let mut compiler = protox::Compiler::new(INCLUDES)?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES.iter().chain(&THIRD_PARTY))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("holdfast.binpb"), compiler.encode_file_descriptor_set())?;

    let mut ours = protox::Compiler::new(INCLUDES)?;
    let set = ours.include_imports(true).include_source_info(true).open_files(FILES)?.file_descriptor_set();
    tonic_prost_build::configure()
        .extern_path(".google.protobuf.Timestamp", "::prost_types::Timestamp")
        .extern_path(".google.protobuf.Duration", "::prost_types::Duration")
        .compile_fds(set)?;
    Ok(())
}
