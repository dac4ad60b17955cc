//! `letterbox-worker`. The program itself is in the library, so that it is compiled once.

fn main() -> std::process::ExitCode {
    letterbox_worker::main()
}
