//! The fuzz targets hold for their seeds and for some thousand changes of them, always the same:
//! they and the seeds are up to date. `deploy/fuzz` searches.

use std::{collections::BTreeSet, fs, panic::catch_unwind};

use crate::source_tree::root;

#[path = "../fuzz/targets/mod.rs"]
mod targets;

/// Changes of the inputs of each target.
const CHANGES: usize = 300;
/// The longest input that is made.
const MAX_LENGTH: usize = 4_096;

/// The seeds of a target, by their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = root().join("tests/fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let files = files.map(|file| {
        let path = file.unwrap().path();
        (path.display().to_string(), fs::read(&path).unwrap())
    });
    let mut corpus: Vec<_> = files.collect();
    corpus.sort();
    corpus
}

/// Changes a few bytes: another, one less, a part of another seed, something twice.
fn changed(random: &mut fastrand::Rng, corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
    let any = |random: &mut fastrand::Rng| corpus[random.usize(..corpus.len())].1.clone();
    let mut input = any(random);
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=input.len());
        let end = random.usize(at..=input.len()).min(at + 16);
        match random.u32(..5) {
            0 if at < input.len() => input[at] = random.u8(..),
            1 if at < input.len() => input[at] ^= 1 << random.u32(..8),
            2 => drop(input.drain(at..end)),
            3 => {
                let twice = input[at..end].to_vec();
                input.splice(at..at, twice);
            }
            _ => {
                let other = any(random);
                let begin = random.usize(..=other.len());
                let end = random.usize(begin..=other.len()).min(begin + 64);
                input.splice(at..at, other[begin..end].iter().copied());
            }
        }
    }
    input.truncate(MAX_LENGTH);
    input
}

#[test]
fn targets_hold_for_their_corpora_and_changes_of_them() {
    for (name, target) in targets::TARGETS {
        let corpus = corpus(name);
        assert!((1..=8).contains(&corpus.len()), "{name}");
        let mut random = fastrand::Rng::with_seed(1);
        let changed = (0..CHANGES).map(|number| {
            let input = changed(&mut random, &corpus);
            (format!("{name}, change {number}"), input)
        });
        for (which, input) in corpus.iter().cloned().chain(changed.collect::<Vec<_>>()) {
            let held = catch_unwind(|| target(&input));
            assert!(held.is_ok(), "{which}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn every_corpus_has_its_target() {
    let folders = fs::read_dir(root().join("tests/fuzz/corpus")).unwrap();
    let names = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    let targets = targets::TARGETS.iter().map(|(name, _)| (*name).to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), targets.collect());
}
