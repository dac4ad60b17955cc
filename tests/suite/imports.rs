//! Imports point one way: no file imports what imports it, and neither does any room, as the
//! top-level modules of a crate are called here.

use std::collections::{BTreeMap, BTreeSet};

use crate::source_tree::{code, files};

/// The sources of each crate that has modules: of programs beside a library, too.
const CRATES: [&str; 12] = [
    "common/src",
    "common/broker/src",
    "common/database/src",
    "common/form_page/src",
    "common/traces/src",
    "gateway/src",
    "worker/src",
    "worker/workflow/src",
    "worker/operator/src",
    "worker/operator/src/bin/letterbox",
    "worker/trials/src",
    "worker/desk/src",
];

/// The path of a module in its crate; empty for `lib.rs`.
type Module = Vec<String>;

/// Each module of a crate, and the modules that its file imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn files_and_rooms_have_no_circles() {
    for folder in CRATES {
        let files = Crate::read(folder).imports();
        assert!(files.len() > 3, "{folder}: {files:?}");
        assert_no_circle(folder, &files);
        // The crate's own file ties its rooms together.
        let mut rooms = Imports::new();
        for (file, imports) in files.iter().filter(|(file, _)| !file.is_empty()) {
            let room = &file[..1];
            let others = imports
                .iter()
                .filter(|one| !one.is_empty() && &one[..1] != room);
            let rooms = rooms.entry(room.to_vec()).or_default();
            rooms.extend(others.map(|one| one[..1].to_vec()));
        }
        assert_no_circle(folder, &rooms);
    }
}

#[test]
fn a_circle_is_found() {
    let sources = [
        ("lib.rs", "mod a;\nmod b;\npub use a::Thing;"),
        ("a.rs", "use crate::b::{self, Other};"),
        ("b/mod.rs", "mod deeper;\npub use deeper::Other;"),
        ("b/deeper.rs", "use super::super::Thing;"),
    ];
    let sources = sources.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let found = Crate::of(sources).imports();
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let expected = [
        (
            module("a"),
            BTreeSet::from([module("b"), module("b::deeper")]),
        ),
        (module("b::deeper"), BTreeSet::from([module("a")])),
    ];
    for (file, imports) in expected {
        assert_eq!(found[&file], imports, "{file:?}");
    }
    assert_eq!(circle(&found), Some(vec![module("a"), module("b::deeper")]));
}

fn assert_no_circle(folder: &str, imports: &Imports) {
    let circle = circle(imports);
    assert_eq!(
        circle, None,
        "{folder}: each of these imports the next, and the last the first"
    );
}

/// The shortest way from some module back to itself.
fn circle(imports: &Imports) -> Option<Vec<Module>> {
    let ways = imports.keys().filter_map(|start| {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        let mut index = 0;
        while let Some(way) = ways.get(index).cloned() {
            index += 1;
            for next in imports.get(way.last()?).into_iter().flatten() {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    ways.push([&way[..], std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    });
    ways.min_by_key(Vec::len)
}

/// The sources of a crate.
struct Crate {
    /// The code of each module.
    modules: BTreeMap<Module, String>,
    /// The names that a module exports of others: where they come from.
    exports: BTreeMap<(Module, String), Vec<String>>,
}

impl Crate {
    fn read(folder: &str) -> Self {
        let all = files(folder).into_iter().map(|(name, text)| {
            let name = name.strip_prefix(folder).unwrap().to_owned();
            let code: Vec<_> = code(&text).collect();
            (name.trim_start_matches('/').to_owned(), code.join("\n"))
        });
        Self::of(all.filter(|(name, _)| !name.starts_with("bin/") && !name.ends_with("tests.rs")))
    }

    fn of(sources: impl IntoIterator<Item = (String, String)>) -> Self {
        let modules = sources.into_iter().map(|(name, text)| {
            let path = name.trim_end_matches(".rs").split('/');
            let path = path.filter(|part| !["lib", "main", "mod"].contains(part));
            (path.map(str::to_owned).collect(), text)
        });
        let modules: BTreeMap<Module, String> = modules.collect();
        let mut exports = BTreeMap::new();
        for (module, text) in &modules {
            for (path, used) in paths(text) {
                let name = path.last().unwrap().clone();
                // Modules below see what this one imports for itself, too.
                if used != Used::Inline && path.first().is_none_or(|first| *first != name) {
                    exports.insert((module.clone(), name), path);
                }
            }
        }
        Self { modules, exports }
    }

    fn imports(&self) -> Imports {
        let of_module = |(module, text): (&Module, &String)| {
            let named = paths(text)
                .into_iter()
                .filter(|(_, used)| *used != Used::Exported);
            let named = named.filter_map(|(path, _)| self.defined_in(module, &path, 0));
            (module.clone(), named.filter(|one| one != module).collect())
        };
        self.modules.iter().map(of_module).collect()
    }

    /// The module that defines what a path in another one names; `None` if it is another crate's.
    fn defined_in(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let absolute = match path.first()?.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => [module, &path[1..]].concat(),
            "super" => [&module[..module.len().checked_sub(ups)?], &path[ups..]].concat(),
            first => {
                let child = [&module[..], &[first.to_owned()]].concat();
                self.modules
                    .contains_key(&child)
                    .then(|| [module, path].concat())?
            }
        };
        let mut lengths = (0..=absolute.len()).rev();
        let length = lengths.find(|length| self.modules.contains_key(&absolute[..*length]))?;
        let (found, rest) = absolute.split_at(length);
        let export = rest.first().map(|name| (found.to_vec(), name.clone()));
        match export.and_then(|export| self.exports.get(&export)) {
            // Exports lead to exports, but not for ever.
            Some(path) if depth < 8 => self.defined_in(
                &found.to_vec(),
                &[&path[..], &rest[1..]].concat(),
                depth + 1,
            ),
            _ => Some(found.to_vec()),
        }
    }
}

/// How a file names something.
#[derive(PartialEq)]
enum Used {
    Imported,
    Exported,
    Inline,
}

/// The paths that a file names: those of its `use` items, one for each name, and those elsewhere
/// that begin in this crate.
fn paths(text: &str) -> Vec<(Vec<String>, Used)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let item = line.trim();
        let (visibility, tree) = item.split_once("use ").unwrap_or((item, ""));
        let is_use = ["", "pub ", "pub(crate) ", "pub(super) "].contains(&visibility);
        if is_use && !tree.is_empty() {
            let mut tree = tree.to_owned();
            while !tree.ends_with(';') {
                tree += lines.next().unwrap().trim();
            }
            let names = names(tree.trim_end_matches(';'));
            let used = || match visibility {
                "" => Used::Imported,
                _ => Used::Exported,
            };
            found.extend(names.into_iter().map(|path| (path, used())));
            continue;
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        // Where something is visible says nothing of what is imported.
        let line = match line.trim().strip_prefix("pub(in ") {
            Some(line) => line.split_once(')').unwrap().1,
            None => line,
        };
        let inside = line.split(|c| !is_name(c)).filter(|piece| {
            let starts = ["crate::", "super::", "self::"];
            starts.iter().any(|start| piece.starts_with(start))
        });
        found.extend(inside.map(|piece| (parts(piece), Used::Inline)));
    }
    found
}

/// Each name of the tree of a `use` item, with its whole path.
fn names(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        return vec![parts(path)]
            .into_iter()
            .filter(|path| !path.is_empty())
            .collect();
    };
    let inside = &inside[..inside.rfind('}').unwrap()];
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for c in inside.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => branches.push(String::new()),
            c => branches.last_mut().unwrap().push(c),
        }
    }
    let below = branches.iter().flat_map(|branch| names(branch));
    let whole = below.map(|mut below| {
        // `a::{self}` names `a`.
        below.retain(|part| part != "self");
        [parts(before), below].concat()
    });
    whole.collect()
}

fn parts(path: &str) -> Vec<String> {
    let parts = path.trim().split("::").map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
