//! `cargo xtask interface`: what changed in the public interface, and whether the changelogs say
//! so.
//!
//! `tools/xtask/interface` has a listing of each published crate as it was at the last release; as
//! long as there is none, as it was when the listings were made. What differs from it must be named
//! in the part `[Unreleased]` of the crate's changelog. A release writes the listings anew.
//!
//! A listing has the names, signatures, fields and variants that are public. Items that macros make
//! and implementations of traits are not in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use quote::ToTokens;
use serde_json::Value;
use syn::{Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use crate::copy::read;
use crate::shell::{capture, cargo, root};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Writes the listings anew, as a release does.
    #[arg(long)]
    reset: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !options.reset {
        return check();
    }
    for krate in crates()? {
        let lines: Vec<_> = listing(&krate.folder.join("src"))?.into_iter().collect();
        fs::write(krate.listing(), lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// Each difference is in a changelog.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut silent = Vec::new();
    for krate in crates()? {
        let now = listing(&krate.folder.join("src"))?;
        let before = read(&krate.listing())?.lines().map(str::to_owned).collect();
        let changelog = read(&krate.folder.join("CHANGELOG.md"))?;
        let words = words_of_unreleased(&changelog);
        silent.extend(unnamed(&before, &now, &words).map(|line| format!("{}: {line}", krate.name)));
    }
    ensure!(
        silent.is_empty(),
        "changed, and the changelog does not name it:\n  {}",
        silent.join("\n  ")
    );
    Ok(())
}

struct Crate {
    name: String,
    folder: PathBuf,
}

impl Crate {
    fn listing(&self) -> PathBuf {
        root().join("tools/xtask/interface").join(format!("{}.txt", self.name))
    }
}

/// The crates that are published.
fn crates() -> anyhow::Result<Vec<Crate>> {
    let output = capture(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let named = published.map(|package| {
        let name = package["name"].as_str().context("a package without a name")?.to_owned();
        let manifest = package["manifest_path"].as_str().context("a package without a place")?;
        let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
        Ok(Crate { name, folder: folder.to_owned() })
    });
    named.collect()
}

/// Lines that are in one of both only and of which the changelog names neither the item nor what it
/// belongs to.
fn unnamed(
    before: &BTreeSet<String>,
    now: &BTreeSet<String>,
    words: &BTreeSet<String>,
) -> impl Iterator<Item = String> {
    let is_named = |line: &&String| {
        let path = line.split_once(' ').map_or(line.as_str(), |(path, _)| path);
        path.split("::").any(|name| words.contains(name))
    };
    let differ = before.symmetric_difference(now).filter(|line| !is_named(line));
    let sign = |line: &String| if now.contains(line) { "+" } else { "-" };
    differ.map(|line| format!("{} {line}", sign(line))).collect::<Vec<_>>().into_iter()
}

/// Words of the code in the first part of a changelog.
fn words_of_unreleased(changelog: &str) -> BTreeSet<String> {
    let part = changelog.split("\n## ").nth(1).filter(|part| part.starts_with("[Unreleased]"));
    let code = part.unwrap_or_default().split('`').skip(1).step_by(2);
    let words = code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The public items below a folder. `unreachable_pub` sees to it that what is `pub` is public.
fn listing(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut lines = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.as_str() {
            "tests" | "tests.rs" | "bin" | "main.rs" => {}
            _ if path.is_dir() => lines.extend(listing(&path)?),
            _ if name.ends_with(".rs") => {
                let file = syn::parse_file(&read(&path)?);
                let file = file.with_context(|| format!("parsing {}", path.display()))?;
                items(&file.items, &mut lines);
            }
            _ => {}
        }
    }
    Ok(lines)
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

/// Tests, and what no document shows.
fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        ["# [cfg (test)]", "# [doc (hidden)]"].contains(&text.as_str())
    })
}

fn text(tokens: impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}

fn items(items: &[Item], lines: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Fn(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                lines.insert(format!("{} {}", it.sig.ident, text(&it.sig)));
            }
            Item::Struct(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                let name = it.ident.to_string();
                lines.insert(format!("{name} struct {}", text(&it.generics)));
                fields(&name, &it.fields, is_public, lines);
            }
            Item::Enum(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                let name = it.ident.to_string();
                lines.insert(format!("{name} enum {}", text(&it.generics)));
                for variant in &it.variants {
                    let name = format!("{name}::{}", variant.ident);
                    lines.insert(format!("{name} variant"));
                    fields(&name, &variant.fields, |_| true, lines);
                }
            }
            Item::Trait(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                let name = it.ident.to_string();
                let (generics, supers) = (text(&it.generics), text(&it.supertraits));
                lines.insert(format!("{name} trait {generics}: {supers}"));
                for item in &it.items {
                    lines.extend(of_trait(&name, item));
                }
            }
            Item::Const(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                lines.insert(format!("{} const {}", it.ident, text(&it.ty)));
            }
            Item::Type(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                lines.insert(format!("{} type {}", it.ident, text(&it.ty)));
            }
            Item::Macro(it) if it.attrs.iter().any(|a| a.path().is_ident("macro_export")) => {
                lines.extend(it.ident.as_ref().map(|name| format!("{name} macro")));
            }
            Item::Use(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
                uses(&it.tree, lines);
            }
            Item::Impl(it) if it.trait_.is_none() && !is_hidden(&it.attrs) => {
                let owner = text(&it.self_ty);
                let owner = owner.split([' ', '<']).next().unwrap_or_default();
                lines.extend(it.items.iter().filter_map(|item| of_impl(owner, item)));
            }
            Item::Mod(it) if !is_hidden(&it.attrs) => {
                self::items(it.content.as_ref().map_or(&[][..], |(_, items)| items), lines);
            }
            _ => {}
        }
    }
}

fn fields(
    owner: &str,
    of: &Fields,
    is_shown: impl Fn(&Visibility) -> bool,
    lines: &mut BTreeSet<String>,
) {
    for (place, field) in of.iter().enumerate().filter(|(_, field)| is_shown(&field.vis)) {
        let name = field.ident.as_ref().map_or_else(|| place.to_string(), ToString::to_string);
        lines.insert(format!("{owner}::{name} field {}", text(&field.ty)));
    }
}

fn of_trait(owner: &str, item: &TraitItem) -> Option<String> {
    Some(match item {
        TraitItem::Fn(it) => {
            let provided = if it.default.is_some() { "provided " } else { "" };
            format!("{owner}::{} {provided}{}", it.sig.ident, text(&it.sig))
        }
        TraitItem::Type(it) => format!("{owner}::{} type {}", it.ident, text(&it.bounds)),
        TraitItem::Const(it) => format!("{owner}::{} const {}", it.ident, text(&it.ty)),
        _ => return None,
    })
}

fn of_impl(owner: &str, item: &ImplItem) -> Option<String> {
    match item {
        ImplItem::Fn(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
            Some(format!("{owner}::{} {}", it.sig.ident, text(&it.sig)))
        }
        ImplItem::Const(it) if is_public(&it.vis) && !is_hidden(&it.attrs) => {
            Some(format!("{owner}::{} const {}", it.ident, text(&it.ty)))
        }
        _ => None,
    }
}

/// What is passed on, by its last name.
fn uses(tree: &UseTree, lines: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => uses(&path.tree, lines),
        UseTree::Name(name) => drop(lines.insert(format!("{} use", name.ident))),
        UseTree::Rename(name) => drop(lines.insert(format!("{} use", name.rename))),
        UseTree::Glob(_) => drop(lines.insert("* use".to_owned())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| uses(tree, lines)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        items(&syn::parse_file(source).unwrap().items, &mut lines);
        lines
    }

    #[test]
    fn a_listing_has_what_users_can_name() {
        let found = lines(
            "pub struct Link { pub name: String, secret: u8 }
             struct Hidden { pub a: u8 }
             impl Link { pub fn open(at: u64) -> Self { todo() } fn shut(&self) {} }
             pub enum Kind { One, Two { size: u32 } }
             pub trait Bus: Send { type Error; fn ring(&self); fn twice(&self) { self.ring() } }
             pub use other::{Part, deep::Thing as Other};
             #[cfg(test)] mod tests { pub fn helper() {} }
             pub(crate) fn inner() {}",
        );
        let expected = [
            "Bus trait : Send",
            "Bus::Error type ",
            "Bus::ring fn ring (& self)",
            "Bus::twice provided fn twice (& self)",
            "Kind enum ",
            "Kind::One variant",
            "Kind::Two variant",
            "Kind::Two::size field u32",
            "Link struct ",
            "Link::name field String",
            "Link::open fn open (at : u64) -> Self",
            "Other use",
            "Part use",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_change_of_the_interface_must_be_in_the_changelog() {
        let before = lines("pub fn keep() {} pub fn widen(a: u32) {} pub fn gone() {}");
        let now = lines("pub fn keep() {} pub fn widen(a: u64) {} pub struct S { pub x: u8 }");
        let silent = |changelog: &str| {
            let words = words_of_unreleased(changelog);
            unnamed(&before, &now, &words).collect::<Vec<_>>()
        };
        let all = "# Changelog\n\n## [Unreleased]\n\n- `S`, for `widen(u64)`; no `gone`.\n";
        assert_eq!(silent(all), [""; 0]);
        // Of an older release, or not as code.
        let old = "# Changelog\n\n## [Unreleased]\n\n- S\n\n## 0.1.0\n\n- `S` `widen` `gone`\n";
        let expected = [
            "+ S struct ",
            "+ S::x field u8",
            "- gone fn gone ()",
            "- widen fn widen (a : u32)",
            "+ widen fn widen (a : u64)",
        ];
        assert_eq!(silent(old), expected);
        let one = "# Changelog\n\n## [Unreleased]\n\n- `S` and `widen`\n";
        assert_eq!(silent(one), ["- gone fn gone ()"]);
    }

    #[test]
    fn every_published_crate_has_a_listing_and_says_what_changed() {
        check().unwrap();
    }
}
