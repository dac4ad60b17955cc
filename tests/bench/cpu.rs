//! Processor time of processes, as the system counts them.

use std::{sync::LazyLock, time::Instant};

use crate::{
    figures::{
        BUSY_ELSEWHERE, CPU_ALL, CPU_GATEWAY, CPU_GENERATOR, CPU_POSTGRES, CPU_RABBITMQ,
        CPU_SECOND_WORKER, CPU_WORKER, Measurement,
    },
    load::Window,
};

/// Those that do the work.
const SERVICE: [&str; 5] = [
    CPU_GATEWAY,
    CPU_WORKER,
    CPU_SECOND_WORKER,
    CPU_POSTGRES,
    CPU_RABBITMQ,
];
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// What the system counts in.
const TICKS_A_SECOND: f64 = 100.0;

/// Whose time is taken.
#[derive(Debug, Clone, Copy)]
enum Whose {
    Process(u32),
    /// A process with its children, also those that have ended.
    Family(u32),
}

/// Processes that are watched while something is measured.
#[derive(Debug, Clone)]
pub struct Watched(Vec<(&'static str, Whose)>);

/// Seconds that each has used so far, or in between.
#[derive(Debug, Clone)]
pub struct Used {
    parts: Vec<(&'static str, f64)>,
    /// All processors of the machine.
    machine: f64,
    /// By the clock.
    elapsed: f64,
}

impl Default for Watched {
    /// The load generator itself.
    fn default() -> Self {
        let this = Whose::Process(std::process::id());
        Self(vec![(CPU_GENERATOR, this)])
    }
}

impl Watched {
    /// One more, in front of the others.
    pub fn with_process(mut self, name: &'static str, pid: u32) -> Self {
        self.0.insert(0, (name, Whose::Process(pid)));
        self
    }

    /// One more with its children, in front of the others.
    pub fn with_family(mut self, name: &'static str, pid: u32) -> Self {
        self.0.insert(0, (name, Whose::Family(pid)));
        self
    }

    /// What is used from the beginning of a window to its end.
    pub async fn used_in(&self, window: Window) -> Used {
        tokio::time::sleep_until(window.from.into()).await;
        let before = self.sample();
        tokio::time::sleep_until(window.until.into()).await;
        self.sample().since(&before)
    }

    pub fn sample(&self) -> Used {
        let seconds = |whose| match whose {
            Whose::Process(pid) => Stat::of(pid).map_or(0.0, |stat| stat.own),
            Whose::Family(pid) => family_seconds(pid),
        };
        let parts = self.0.iter().map(|(name, whose)| (*name, seconds(*whose)));
        Used {
            parts: parts.collect(),
            machine: machine_seconds(),
            elapsed: START.elapsed().as_secs_f64(),
        }
    }
}

impl Used {
    /// What has been used since `before`, a sample of the same processes.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = self.parts.iter().zip(&before.parts);
        let parts = pairs.map(|((name, now), (_, before))| (*name, now - before));
        Self {
            parts: parts.collect(),
            machine: self.machine - before.machine,
            elapsed: self.elapsed - before.elapsed,
        }
    }

    /// Adds microseconds for each of so many events, and what the machine was busy with besides.
    pub fn add_to(&self, measurement: &mut Measurement<'_>, events: f64) {
        let micros = |seconds: f64| seconds * 1e6 / events;
        let sum = |parts: &[(&str, f64)]| parts.iter().map(|(_, seconds)| seconds).sum::<f64>();
        if events > 0.0 {
            for (name, seconds) in &self.parts {
                measurement.add(*name, micros(*seconds));
            }
            let service = self.parts.iter().filter(|(name, _)| SERVICE.contains(name));
            let service: Vec<_> = service.copied().collect();
            if service.len() > 1 {
                measurement.add(CPU_ALL, micros(sum(&service)));
            }
        }
        let others = (self.machine - sum(&self.parts)).max(0.0);
        measurement.add(BUSY_ELSEWHERE, others / self.elapsed);
    }
}

/// Time that the processors of the machine were not idle, also for other machines.
fn machine_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    // user, nice, system, idle, waiting, interrupts, soft interrupts, stolen
    let ticks = line.split_whitespace().skip(1).take(8).enumerate();
    let busy = ticks.filter(|(column, _)| ![3, 4].contains(column));
    let ticks: f64 = busy
        .filter_map(|(_, ticks)| ticks.parse::<f64>().ok())
        .sum();
    ticks / TICKS_A_SECOND
}

/// What the system says of a process.
struct Stat {
    parent: u32,
    /// Seconds that it has used, in user and system mode.
    own: f64,
    /// Those of its children that have ended.
    ended: f64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Fields are counted behind the program's name, which may hold anything.
        let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
        let seconds = |index: usize| -> Option<f64> {
            Some(fields.get(index)?.parse::<f64>().ok()? / TICKS_A_SECOND)
        };
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: seconds(11)? + seconds(12)?,
            ended: seconds(13)? + seconds(14)?,
        })
    }
}

/// Time of a process and its children. A child's time is either its own or, when it has ended, in
/// that of its parent, never in both.
fn family_seconds(pid: u32) -> f64 {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(Stat::of).filter(|stat| stat.parent == pid);
    let living: f64 = children.map(|stat| stat.own).sum();
    living + Stat::of(pid).map_or(0.0, |stat| stat.own + stat.ended)
}
