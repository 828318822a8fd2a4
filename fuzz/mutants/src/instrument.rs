//! Puts all mutants of a file into it at once, each behind a switch.
//!
//! `a + b` becomes `(if on(17) { (a) - (b) } else { a + b })`. The operands of a mutated alternative are the original
//! text: one mutant is on at a time.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::list::{Genre, Mutant, Place};

/// Number of a mutant in its program; the switch reserves lower ones.
pub type Id = u32;
pub const FIRST_ID: Id = 16;

/// The file with its mutants.
pub struct Instrumented {
    pub text: String,
    /// Bytes of `text` that exist for these mutants alone.
    pub owners: Vec<(Range<usize>, Vec<Id>)>,
}

/// One place in a file that mutants change.
struct Site {
    range: Range<usize>,
    shape: Shape,
    mutants: Vec<(Id, String)>,
    const_fn: bool,
}

enum Shape {
    Body,
    Binary {
        left: Range<usize>,
        right: Range<usize>,
    },
    Unary {
        operand: Range<usize>,
    },
    /// A guard is added to the pattern, which ends here.
    Arm {
        pattern_end: usize,
    },
    Guard,
    /// A `match` of which arms can be deleted: it may not compile without one.
    Match,
}

/// A file, and the mutants that it does not have switches for.
pub struct Parsed {
    pub file: File,
    /// Those in constants, and shapes that a switch cannot express.
    pub without_switch: Vec<Id>,
    /// Those in parts that only models and fault injection compile.
    pub switched_off: HashSet<Id>,
}

/// Sites of a file, outer ones before those they contain.
pub struct File {
    source: String,
    sites: Vec<Site>,
}

impl File {
    /// Finds the sites of the mutants.
    pub fn parse(source: String, mutants: &[(Id, &Mutant)]) -> Result<Parsed> {
        let file = syn::parse_file(&source).context("cannot parse")?;
        let mut finder = Finder {
            mutants,
            sites: Vec::new(),
            constant: false,
            const_fn: false,
            switched_off: Vec::new(),
        };
        finder.visit_file(&file);
        let mut sites = finder.sites;
        sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
        let placed: HashSet<Id> = sites
            .iter()
            .flat_map(|site| site.mutants.iter().map(|(id, _)| *id))
            .collect();
        let switched_off: HashSet<Id> = mutants
            .iter()
            .filter(|(_, mutant)| {
                let mut models = finder.switched_off.iter();
                models.any(|lines| lines.contains(&mutant.span.start.line))
            })
            .map(|(id, _)| *id)
            .collect();
        let without_switch = mutants
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| !placed.contains(id) && !switched_off.contains(id))
            .collect();
        Ok(Parsed {
            file: Self { source, sites },
            without_switch,
            switched_off,
        })
    }

    /// Mutants in `const fn`s, which their switches do not turn on in constants.
    pub fn in_const_fns(&self) -> impl Iterator<Item = Id> {
        let sites = self.sites.iter().filter(|site| site.const_fn);
        sites.flat_map(|site| site.mutants.iter().map(|(id, _)| *id))
    }

    /// Writes the file with all mutants that are not in `left_out`.
    pub fn render(&self, left_out: &HashSet<Id>) -> Instrumented {
        let mut output = Instrumented {
            text: String::with_capacity(4 * self.source.len()),
            owners: Vec::new(),
        };
        self.emit(0..self.source.len(), &self.sites, left_out, &mut output);
        output
    }

    /// Emits a range and the sites in it.
    fn emit(
        &self,
        range: Range<usize>,
        sites: &[Site],
        left_out: &HashSet<Id>,
        output: &mut Instrumented,
    ) {
        let mut at = range.start;
        let mut index = 0;
        while let Some(site) = sites.get(index) {
            let inner = sites[index + 1..]
                .iter()
                .take_while(|other| other.range.start < site.range.end)
                .count();
            let inside = &sites[index + 1..index + 1 + inner];
            index += 1 + inner;
            output.text.push_str(&self.source[at..site.range.start]);
            self.emit_site(site, inside, left_out, output);
            at = site.range.end;
        }
        output.text.push_str(&self.source[at..range.end]);
    }

    fn emit_part(
        &self,
        range: Range<usize>,
        sites: &[Site],
        left_out: &HashSet<Id>,
        output: &mut Instrumented,
    ) {
        let first = sites.partition_point(|site| site.range.start < range.start);
        let count = sites[first..].partition_point(|site| site.range.start < range.end);
        self.emit(range, &sites[first..first + count], left_out, output);
    }

    fn emit_site(
        &self,
        site: &Site,
        inside: &[Site],
        left_out: &HashSet<Id>,
        output: &mut Instrumented,
    ) {
        let mutants: Vec<_> = site
            .mutants
            .iter()
            .filter(|(id, _)| !left_out.contains(id))
            .collect();
        if mutants.is_empty() {
            return self.emit(site.range.clone(), inside, left_out, output);
        }
        let start = output.text.len();
        let source = |range: &Range<usize>| &self.source[range.clone()];
        match &site.shape {
            Shape::Body => {
                for (id, replacement) in mutants.iter().copied() {
                    alternative(
                        output,
                        *id,
                        &format!("if {} {{ return {replacement}; }} ", on(*id)),
                    );
                }
                self.emit(site.range.clone(), inside, left_out, output);
            }
            Shape::Binary { left, right } => {
                output.text.push('(');
                for (id, operator) in mutants.iter().copied() {
                    let (left, right) = (source(left), source(right));
                    alternative(
                        output,
                        *id,
                        &format!("if {} {{ ({left}) {operator} ({right}) }} else ", on(*id)),
                    );
                }
                output.text.push_str("{ ");
                self.emit(site.range.clone(), inside, left_out, output);
                output.text.push_str(" })");
            }
            Shape::Unary { operand } => {
                let (id, operand) = (mutants[0].0, source(operand));
                output.text.push('(');
                alternative(output, id, &format!("if {} {{ {operand} }} else ", on(id)));
                output.text.push_str("{ ");
                self.emit(site.range.clone(), inside, left_out, output);
                output.text.push_str(" })");
            }
            Shape::Arm { pattern_end } => {
                let id = mutants[0].0;
                self.emit_part(site.range.start..*pattern_end, inside, left_out, output);
                alternative(output, id, &format!(" if !{}", on(id)));
                self.emit_part(*pattern_end..site.range.end, inside, left_out, output);
            }
            Shape::Match => self.emit(site.range.clone(), inside, left_out, output),
            Shape::Guard => {
                output.text.push('(');
                for (id, value) in mutants.iter().copied() {
                    let text = if value == "true" {
                        format!("{} || ", on(*id))
                    } else {
                        format!("!{} && ", on(*id))
                    };
                    alternative(output, *id, &text);
                }
                output.text.push('(');
                self.emit(site.range.clone(), inside, left_out, output);
                output.text.push_str("))");
            }
        }
        let all = mutants.iter().map(|(id, _)| *id).collect();
        output.owners.push((start..output.text.len(), all));
    }
}

fn on(id: Id) -> String {
    format!("crate::mutant_switch::on({id})")
}

fn alternative(output: &mut Instrumented, id: Id, text: &str) {
    let start = output.text.len();
    output.text.push_str(text);
    output.owners.push((start..output.text.len(), vec![id]));
}

struct Finder<'a> {
    mutants: &'a [(Id, &'a Mutant)],
    sites: Vec<Site>,
    /// Inside a constant, where every mutant is off.
    constant: bool,
    /// Inside a `const fn`, which constants may call.
    const_fn: bool,
    /// Lines that only models and fault injection compile.
    switched_off: Vec<RangeInclusive<usize>>,
}

impl Finder<'_> {
    fn find(&self, genre: Genre, start: Place, end: Option<Place>) -> Vec<(Id, String)> {
        let same = |mutant: &Mutant| {
            mutant.genre == genre
                && mutant.span.start == start
                && end.is_none_or(|end| mutant.span.end == end)
        };
        self.mutants
            .iter()
            .filter(|(_, mutant)| same(mutant))
            .map(|(id, mutant)| (*id, mutant.replacement.clone()))
            .collect()
    }

    fn add(&mut self, range: Range<usize>, shape: Shape, mutants: Vec<(Id, String)>) {
        if !mutants.is_empty() && !self.constant {
            self.sites.push(Site {
                range,
                shape,
                mutants,
                const_fn: self.const_fn,
            });
        }
    }

    /// Adds the site of a function's body, and visits it.
    fn function(
        &mut self,
        block: &syn::Block,
        constness: Option<&syn::token::Const>,
        visit: impl FnOnce(&mut Self),
    ) {
        let was = (self.constant, self.const_fn);
        (self.constant, self.const_fn) = (false, constness.is_some());
        if let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) {
            let (first, last) = (first.span(), last.span());
            let mutants = self.find(
                Genre::FnValue,
                place(first.start()),
                Some(place(last.end())),
            );
            let range = first.byte_range().start..last.byte_range().end;
            self.add(range, Shape::Body, mutants);
        }
        visit(self);
        (self.constant, self.const_fn) = was;
    }

    fn in_constant(&mut self, visit: impl FnOnce(&mut Self)) {
        let was = std::mem::replace(&mut self.constant, true);
        visit(self);
        self.constant = was;
    }
}

fn place(at: proc_macro2::LineColumn) -> Place {
    Place {
        line: at.line,
        column: at.column + 1,
    }
}

/// A condition with `let` in it is a chain of `&&`, and no expression of its own.
fn is_let_chain(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) if matches!(binary.op, syn::BinOp::And(_)) => {
            is_let_chain(&binary.left) || is_let_chain(&binary.right)
        }
        _ => false,
    }
}

fn is_switched_off(attribute: &syn::Attribute) -> bool {
    let condition = attribute.path().is_ident("cfg");
    let is_off = |path: syn::Path| path.is_ident("loom") || path.is_ident("polycast_faults");
    condition && attribute.parse_args().is_ok_and(is_off)
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.attrs.iter().any(is_switched_off) {
            let span = item.span();
            self.switched_off.push(span.start().line..=span.end().line);
        } else {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.block, item.sig.constness.as_ref(), |finder| {
            visit::visit_item_fn(finder, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.block, item.sig.constness.as_ref(), |finder| {
            visit::visit_impl_item_fn(finder, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let Some(block) = &item.default else { return };
        self.function(block, item.sig.constness.as_ref(), |finder| {
            visit::visit_trait_item_fn(finder, item);
        });
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.in_constant(|finder| visit::visit_item_const(finder, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.in_constant(|finder| visit::visit_impl_item_const(finder, item));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.in_constant(|finder| visit::visit_item_static(finder, item));
    }

    fn visit_type_array(&mut self, array: &'ast syn::TypeArray) {
        self.in_constant(|finder| visit::visit_type_array(finder, array));
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        self.in_constant(|finder| visit::visit_pat(finder, pattern));
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let chain = is_let_chain(&expr.left) || is_let_chain(&expr.right);
        if !chain {
            let mutants = self.find(Genre::BinaryOperator, place(expr.op.span().start()), None);
            let shape = Shape::Binary {
                left: expr.left.span().byte_range(),
                right: expr.right.span().byte_range(),
            };
            self.add(expr.span().byte_range(), shape, mutants);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let mutants = self.find(Genre::UnaryOperator, place(expr.op.span().start()), None);
        let shape = Shape::Unary {
            operand: expr.expr.span().byte_range(),
        };
        self.add(expr.span().byte_range(), shape, mutants);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        let arms = expr.arms.iter().map(Spanned::span);
        let deleted = arms.flat_map(|arm| {
            let (start, end) = (place(arm.start()), place(arm.end()));
            self.find(Genre::MatchArm, start, Some(end))
        });
        let deleted = deleted.collect();
        self.add(expr.span().byte_range(), Shape::Match, deleted);
        visit::visit_expr_match(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let span = arm.span();
        let mutants = self.find(
            Genre::MatchArm,
            place(span.start()),
            Some(place(span.end())),
        );
        let shape = Shape::Arm {
            pattern_end: arm.pat.span().byte_range().end,
        };
        self.add(span.byte_range(), shape, mutants);
        if let Some((_, guard)) = &arm.guard {
            let span = guard.span();
            let mutants = self.find(
                Genre::MatchArmGuard,
                place(span.start()),
                Some(place(span.end())),
            );
            self.add(span.byte_range(), Shape::Guard, mutants);
        }
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Span;

    fn mutant(genre: Genre, line: usize, columns: Range<usize>, replacement: &str) -> Mutant {
        let place = |column| Place { line, column };
        Mutant {
            name: String::new(),
            file: String::new(),
            span: Span {
                start: place(columns.start),
                end: place(columns.end),
            },
            replacement: replacement.to_owned(),
            genre,
        }
    }

    const SOURCE: &str = "\
const LEN: usize = 4 * 4;
fn f(a: u32, b: u32) -> bool {
    a + b < 7
}
fn g(a: Option<u32>) -> i32 {
    match a {
        Some(1) => -1,
        Some(x) if x > 5 => 2,
        _ => 3,
    }
}
#[cfg(loom)]
mod model {
    fn h() -> i32 { 5 }
}
";

    fn mutants() -> Vec<Mutant> {
        vec![
            mutant(Genre::BinaryOperator, 1, 22..23, "+"),
            mutant(Genre::FnValue, 3, 5..14, "true"),
            mutant(Genre::BinaryOperator, 3, 11..12, ">"),
            mutant(Genre::BinaryOperator, 3, 7..8, "-"),
            mutant(Genre::MatchArm, 7, 9..23, ""),
            mutant(Genre::UnaryOperator, 7, 20..21, ""),
            mutant(Genre::MatchArmGuard, 8, 20..25, "true"),
            mutant(Genre::MatchArmGuard, 8, 20..25, "false"),
            mutant(Genre::FnValue, 14, 21..22, "0"),
        ]
    }

    fn numbered(mutants: &[Mutant]) -> Vec<(Id, &Mutant)> {
        (FIRST_ID..).zip(mutants).collect()
    }

    #[test]
    fn every_shape_gets_its_switch() {
        let mutants = mutants();
        let parsed = File::parse(SOURCE.to_owned(), &numbered(&mutants)).expect("parses");
        assert_eq!(parsed.without_switch, [16], "the constant has no switch");
        assert_eq!(parsed.switched_off, HashSet::from([24]));
        let text = parsed.file.render(&HashSet::new()).text;
        let text = text.replace("crate::mutant_switch::on", "on");
        assert!(text.contains(
            "if on(17) { return true; } (if on(18) { (a + b) > (7) } else { \
             (if on(19) { (a) - (b) } else { a + b }) < 7 })"
        ));
        assert!(text.contains("Some(1) if !on(20) => (if on(21) { 1 } else { -1 }),"));
        assert!(text.contains("Some(x) if (on(22) || !on(23) && (x > 5)) => 2,"));
        syn::parse_file(&text).expect("still Rust");
    }

    #[test]
    fn without_mutants_the_file_is_as_it_was() {
        let mutants = mutants();
        let Parsed { file, .. } =
            File::parse(SOURCE.to_owned(), &numbered(&mutants)).expect("parses");
        let all = (FIRST_ID..FIRST_ID + 9).collect();
        assert_eq!(file.render(&all).text, SOURCE);
    }

    #[test]
    fn owners_are_where_their_text_is() {
        let mutants = mutants();
        let Parsed { file, .. } =
            File::parse(SOURCE.to_owned(), &numbered(&mutants)).expect("parses");
        let output = file.render(&HashSet::new());
        for (range, ids) in output.owners {
            let text = &output.text[range];
            for id in ids {
                assert!(text.contains(&format!("on({id})")), "{id}: {text}");
            }
        }
    }
}
