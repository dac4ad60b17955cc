//! `letterbox-gateway`. The program itself is in the library, which is compiled once.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    letterbox_gateway::main()
}
