//! `letterbox-gateway`. The program is in the library, where it is compiled once.

// Requests come and go on many threads: this one is quicker than the system's at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    letterbox_gateway::main()
}
