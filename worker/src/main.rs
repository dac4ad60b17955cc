//! `letterbox-worker`. The program is in the library, where it is compiled once.

fn main() -> std::process::ExitCode {
    letterbox_worker::main()
}
