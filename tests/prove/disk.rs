//! A small disk for the database, which can be filled.

use std::{fs, io::Write, path::PathBuf, process::Command};

use letterbox_tests::folder;

/// A disk in memory; the folder itself where nothing may be mounted.
pub struct Disk {
    pub folder: PathBuf,
    is_small: bool,
}

impl Disk {
    /// With room for so many MiB.
    pub fn new(size: u32) -> Self {
        let folder = folder().join("disk");
        fs::create_dir_all(&folder).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}m"), "tmpfs"])
            .arg(&folder)
            .output();
        Self {
            folder,
            is_small: mount.is_ok_and(|mount| mount.status.success()),
        }
    }

    /// Fills it; whether nothing fits any more.
    pub fn fill(&self) -> bool {
        if !self.is_small {
            return false;
        }
        let mut ballast = fs::File::create(self.ballast()).unwrap();
        let piece = vec![0; 1 << 20];
        while ballast.write_all(&piece).is_ok() {}
        // What is less than a piece.
        while ballast.write_all(&[0; 4096]).is_ok() {}
        true
    }

    pub fn empty(&self) {
        let _ = fs::remove_file(self.ballast());
    }

    /// How many MiB are used of it; not a number if nobody can tell.
    pub fn used(&self) -> f64 {
        let mut df = Command::new("df");
        let told = df.args(["-m", "--output=used"]).arg(&self.folder).output();
        let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        let used = told
            .ok()
            .and_then(|told| told.lines().last()?.trim().parse().ok());
        used.unwrap_or(f64::NAN)
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}
