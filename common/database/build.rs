//! The schema is embedded: the crate is built again when a file of it changes.

fn main() {
    println!("cargo::rerun-if-changed=../../migrations");
}
