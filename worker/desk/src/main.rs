//! `letterbox-desk`. The program itself is in the library, which is compiled once.

fn main() -> std::process::ExitCode {
    letterbox_desk::main()
}
