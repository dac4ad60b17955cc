//! Lists the migrations for `src/migrations.rs`: the name and the text of each file.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = fs::canonicalize("../../migrations")?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut list = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        if let (Some(name), Some("sql")) = (
            file.file_stem().and_then(|name| name.to_str()),
            file.extension().and_then(|is| is.to_str()),
        ) {
            list.push(format!("({name:?}, include_str!({file:?})),"));
        }
    }
    #[expect(clippy::disallowed_methods, reason = "cargo tells it, and no settings")]
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    list.sort();
    let list = format!("[{}]", list.concat());
    fs::write(Path::new(&out).join("migrations.rs"), list)
}
