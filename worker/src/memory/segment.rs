//! Segments in memory: how sorted keys become rows, how rows of several segments become rows of
//! one, and which segments are worth it.

use uuid::Uuid;

/// Keys in one row: its filter is read for every look-up and fits four times into a page, its keys
/// are read apart, when the filter matches.
const ROW_KEYS: usize = 960;
/// Size of the filter. With two bits set for each key, one look-up of 72 reads keys in vain.
const FILTER_BITS: usize = 16;
const KEY_BYTES: usize = 16;
/// Segments are merged when all smaller ones together have a sixth of the next one's keys: a
/// hundred million keys are in two segments on average, and were written eleven times.
const RATIO: u64 = 6;

/// A key of a workspace, in the order of segments.
pub type Place = (Uuid, Uuid);

/// A row of a segment: keys of one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Tenant.
    pub workspace: Uuid,
    /// The first of the keys.
    pub first_key: Uuid,
    /// Bloom filter.
    pub filter: Vec<u8>,
    /// In order, 16 bytes each.
    pub keys: Vec<u8>,
}

impl Row {
    fn new(keys: &[Place]) -> Option<Self> {
        let (workspace, first_key) = *keys.first()?;
        Some(Self {
            workspace,
            first_key,
            filter: filter(keys),
            keys: keys.iter().flat_map(|(_, key)| *key.as_bytes()).collect(),
        })
    }
}

/// Makes rows of sorted, distinct keys.
pub fn rows(places: &[Place]) -> Vec<Row> {
    places
        .chunk_by(|one, next| one.0 == next.0)
        .flat_map(|workspace| workspace.chunks(ROW_KEYS))
        .filter_map(Row::new)
        .collect()
}

/// The filter as `remembered` reads it (`migrations/V12__memory.sql`).
fn filter(keys: &[Place]) -> Vec<u8> {
    let bits = keys.len() * FILTER_BITS;
    let mut filter = vec![0; bits / 8];
    for (_, key) in keys {
        let [.., a, b, c, d] = *key.as_bytes();
        for bit in [[a, b], [c, d]].map(u16::from_be_bytes) {
            let bit = usize::from(bit) % bits;
            filter[bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// What one segment has from a place on: the row that the place is in, and some that follow.
pub(super) struct Input {
    /// The workspace and the keys of each row.
    pub(super) rows: Vec<(Uuid, Vec<u8>)>,
    /// Whether these are all.
    pub(super) is_complete: bool,
}

impl Input {
    fn places(&self) -> impl Iterator<Item = Place> {
        self.rows.iter().flat_map(|(workspace, keys)| {
            let (keys, _) = keys.as_chunks::<KEY_BYTES>();
            keys.iter().map(|key| (*workspace, Uuid::from_bytes(*key)))
        })
    }

    /// Where the last row begins, if more may follow: what is before it is known.
    fn known_until(&self) -> Option<Place> {
        let (workspace, keys) = self.rows.last().filter(|_| !self.is_complete)?;
        let first = keys.first_chunk::<KEY_BYTES>()?;
        Some((*workspace, Uuid::from_bytes(*first)))
    }
}

/// Merges what several segments have from a place on. Returns the keys, sorted, and where to go on:
/// nowhere if these were all.
pub(super) fn merge(from: Place, inputs: &[Input]) -> (Vec<Place>, Option<Place>) {
    let until = inputs.iter().filter_map(Input::known_until).min();
    let is_wanted = |place: &Place| *place >= from && until.is_none_or(|until| *place < until);
    let all = inputs.iter().flat_map(Input::places);
    let mut places: Vec<Place> = all.filter(is_wanted).collect();
    places.sort(); // stable: it finds the sorted runs
    places.dedup();
    (places, until)
}

/// The segments to merge, of those with the given numbers of keys: the smallest ones, as many as
/// together are not much smaller than the next; the two smallest at least, where that is a must.
pub(super) fn to_merge(segments: &[(i16, u64)], is_a_must: bool) -> Vec<i16> {
    let mut by_size = segments.to_vec();
    by_size.sort_unstable_by_key(|(_, keys)| *keys);
    let mut smaller = 0;
    let mut merged = 0;
    for (place, (_, keys)) in by_size.iter().enumerate() {
        if place > 0 && smaller * RATIO >= *keys || place == 1 && is_a_must {
            merged = place + 1;
        }
        smaller += keys;
    }
    by_size.truncate(merged);
    by_size.into_iter().map(|(segment, _)| segment).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Place = (Uuid::nil(), Uuid::nil());

    fn place() -> impl Strategy<Value = Place> {
        // Few workspaces, and keys that meet.
        (0..3_u128, 0..5_000_u128).prop_map(|(workspace, key)| {
            let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            (Uuid::from_u128(workspace), Uuid::from_u128(spread))
        })
    }

    fn segment() -> impl Strategy<Value = Vec<Row>> {
        prop::collection::btree_set(place(), 0..4_000)
            .prop_map(|places| rows(&Vec::from_iter(places)))
    }

    /// As the database gives it: the row that the place is in, and `most` that follow.
    fn read(segment: &[Row], from: Place, most: usize) -> Input {
        let is_before = |row: &&Row| (row.workspace, row.first_key) < from;
        let first = segment.iter().take_while(is_before).count();
        let rows: Vec<_> = segment[first.saturating_sub(1)..].iter().collect();
        let taken = rows.len().min(most + usize::from(first > 0));
        Input {
            is_complete: taken == rows.len(),
            rows: rows[..taken]
                .iter()
                .map(|row| (row.workspace, row.keys.clone()))
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn merged_segments_hold_what_they_held(
            segments in prop::collection::vec(segment(), 1..4), most in 2..4_usize
        ) {
            let mut merged = Vec::new();
            let mut from = START;
            loop {
                let inputs: Vec<_> = segments.iter().map(|one| read(one, from, most)).collect();
                let (places, next) = merge(from, &inputs);
                merged.extend(places);
                let Some(next) = next else { break };
                prop_assert!(next > from, "no progress");
                from = next;
            }
            let all = segments.iter().flatten().flat_map(|row| {
                let keys = row.keys.as_chunks::<16>().0.iter();
                keys.map(|key| (row.workspace, Uuid::from_bytes(*key)))
            });
            let all = std::collections::BTreeSet::from_iter(all);
            prop_assert_eq!(merged, Vec::from_iter(all));
        }
    }

    #[test]
    fn segments_of_very_different_sizes_are_merged_if_they_must() {
        let segments: Vec<_> = (0..8_i16).map(|n| (n, 10_u64.pow(n as u32))).collect();
        assert_eq!(to_merge(&segments, false), Vec::<i16>::new());
        assert_eq!(to_merge(&segments, true), [0, 1]);
    }

    /// A billion keys, half a million at a time: how many segments there are, and how often a key
    /// is written.
    #[test]
    fn keys_are_in_few_segments_and_seldom_written() {
        let (mut segments, mut written): (Vec<(i16, u64)>, u64) = (Vec::new(), 0);
        let mut most = 0;
        let mut all = 0;
        for moved in 1..=2_000_u64 {
            segments.push((moved as i16, 1));
            written += 1;
            let merged = to_merge(&segments, false);
            if !merged.is_empty() {
                let (old, kept) = segments
                    .into_iter()
                    .partition::<Vec<_>, _>(|(one, _)| merged.contains(one));
                segments = kept;
                let keys = old.iter().map(|(_, keys)| keys).sum();
                segments.push((moved as i16, keys));
                written += keys;
            }
            most = most.max(segments.len());
            all += segments.len();
            if [200, 2_000].contains(&moved) {
                let average = all as f64 / moved as f64;
                let times = written as f64 / moved as f64;
                println!("{} million: {segments:?}", moved / 2);
                println!("{average} on average, at most {most}");
                println!("written {times} times");
            }
        }
        assert!(most <= 4 && written < 2_000 * 17, "{most} {written}");
    }
}
