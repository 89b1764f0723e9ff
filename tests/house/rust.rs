//! Which names a file of Rust declares, imports and mentions.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemImpl, ItemMod, ItemUse, Macro, Meta, Path, Type, UseTree, Visibility};

/// What kind of code a path stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    Product,
    /// A module behind `#[cfg(test)]`.
    Tests,
}

/// How a name comes into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    Private,
    /// Passed on: `pub use`, `pub(crate) use`.
    Passed,
}

/// A path that a file writes, such as `super::Kernel`.
#[derive(Clone, Debug)]
pub struct Mention {
    pub line: usize,
    /// Module in which it stands.
    pub base: Vec<String>,
    pub path: Vec<String>,
    pub within: Within,
    /// `None` for a path in an expression, type or attribute.
    pub import: Option<Import>,
}

/// What one file declares, imports and mentions.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub module: Vec<String>,
    pub declared: BTreeSet<String>,
    /// Paths by the name that they have in this file.
    pub imports: BTreeMap<String, Vec<String>>,
    /// Modules of which everything is imported.
    pub globs: Vec<Vec<String>>,
    pub mentions: Vec<Mention>,
    /// Macros that `#[macro_export]` puts into the root.
    pub macros: BTreeSet<String>,
    /// Types behind `impl` without a trait, by line.
    pub impls: Vec<(usize, String)>,
}

/// Reads a file that is the module `module`.
pub fn read(text: &str, module: &[&str]) -> Source {
    let module: Vec<String> = module.iter().map(ToString::to_string).collect();
    let source = Source { module: module.clone(), ..Source::default() };
    let mut reader = Reader { base: module, within: Within::Product, source };
    let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{:?}: {error}", reader.base));
    reader.declare(&file.items);
    reader.visit_file(&file);
    let Source { imports, mentions, .. } = &mut reader.source;
    mentions
        .retain(|mention| mention.path.len() > 1 || mention.import.is_some() || imports.contains_key(&mention.path[0]));
    reader.source
}

struct Reader {
    base: Vec<String>,
    within: Within,
    source: Source,
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.meta.to_token_stream().to_string() == "cfg (test)")
}

impl Reader {
    fn declare(&mut self, items: &[Item]) {
        for item in items {
            let name = match item {
                Item::Fn(item) => &item.sig.ident,
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Const(item) => &item.ident,
                Item::Static(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Union(item) => &item.ident,
                Item::Macro(item) => {
                    let Some(name) = &item.ident else { continue };
                    self.source.macros.insert(name.to_string());
                    name
                }
                _ => continue,
            };
            self.source.declared.insert(name.to_string());
        }
    }

    fn mention(&mut self, span: Span, path: Vec<String>, import: Option<Import>) {
        let (base, within) = (self.base.clone(), self.within);
        self.source.mentions.push(Mention { line: span.start().line, base, path, within, import });
    }

    /// One branch of a `use`, behind the names of `path`.
    fn read_tree(&mut self, tree: &UseTree, mut path: Vec<String>, import: Import) {
        let name = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.read_tree(&tree.tree, path, import);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.read_tree(tree, path.clone(), import));
            }
            UseTree::Glob(_) => {
                self.source.globs.push(path.clone());
                return self.mention(tree.span(), path, Some(import));
            }
            UseTree::Name(tree) => {
                path.push(tree.ident.to_string());
                None
            }
            UseTree::Rename(tree) => {
                path.push(tree.ident.to_string());
                Some(tree.rename.to_string())
            }
        };
        if path.len() > 1 {
            path.pop_if(|last| last == "self");
        }
        let last = path.last().cloned().unwrap_or_default();
        self.source.imports.insert(name.unwrap_or(last), path.clone());
        self.mention(tree.span(), path, Some(import));
    }

    /// The paths between the braces of a macro, whose grammar is its own.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut start, mut colons) = (Vec::new(), None, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => path.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.end_path(&mut path, start);
                    start = Some(name.span());
                    path.push(name.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.end_path(&mut path, start);
                    self.read_tokens(group.stream());
                }
                _ => self.end_path(&mut path, start),
            }
            colons = 0;
        }
        self.end_path(&mut path, start);
    }

    fn end_path(&mut self, path: &mut Vec<String>, start: Option<Span>) {
        if let Some(start) = start.filter(|_| !path.is_empty()) {
            self.mention(start, std::mem::take(path), None);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_passed = !matches!(item.vis, Visibility::Inherited);
        self.read_tree(&item.tree, Vec::new(), if is_passed { Import::Passed } else { Import::Private });
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let Some((_, items)) = &item.content else { return };
        let outer = self.within;
        if is_for_tests(&item.attrs) {
            self.within = Within::Tests;
        }
        self.base.push(item.ident.to_string());
        self.declare(items);
        items.iter().for_each(|item| self.visit_item(item));
        self.base.pop();
        self.within = outer;
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let (None, Within::Product, Type::Path(of)) = (&item.trait_, self.within, &*item.self_ty) {
            let name = of.path.segments.last().map(|last| last.ident.to_string());
            self.source.impls.extend(name.map(|name| (item.impl_token.span().start().line, name)));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.mention(path.span(), names, None);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        visit::visit_macro(self, item);
        self.read_tokens(item.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.read_tokens(list.tokens.clone());
        }
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
