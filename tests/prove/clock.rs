//! The database's clock, which can be set forth and back while it runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use letterbox_tests::folder;

/// A clock beside the machine's.
pub struct Clock {
    /// Says how far it is from the machine's; `None` where there is no way to set it.
    file: Option<PathBuf>,
    library: String,
}

impl Clock {
    pub fn new() -> Self {
        // Debian's libfaketime has a folder for each architecture.
        let find = "ls /usr/lib/*/faketime/libfaketime.so.1";
        let found = Command::new("sh").args(["-c", find]).output();
        let library = found.map(|found| String::from_utf8_lossy(&found.stdout).trim().to_owned());
        let library = library.unwrap_or_default();
        let file = (!library.is_empty()).then(|| folder().join("clock"));
        let clock = Self { file, library };
        clock.set(0);
        clock.sweep();
        clock
    }

    /// What a process needs to go by this clock.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(file) = &self.file else {
            return Vec::new();
        };
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ]
    }

    /// Removes what killed processes have left of their clocks: the library ends a process that
    /// comes to have the number of one of them.
    pub fn sweep(&self) {
        let Ok(left) = fs::read_dir("/dev/shm") else {
            return;
        };
        for path in left.flatten().map(|left| left.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let of = ["faketime_shm_", "sem.faketime_sem_"];
            let pid = of.iter().find_map(|of| name.strip_prefix(of));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Sets it so many seconds ahead of the machine's; whether that can be done.
    pub fn set(&self, seconds: i64) -> bool {
        let Some(file) = &self.file else { return false };
        let is_set = fs::write(file, format!("{seconds:+}\n")).is_ok();
        // Whoever the server runs as.
        let readable = Command::new("chmod").arg("644").arg(file).status();
        is_set && readable.is_ok_and(|status| status.success())
    }
}
