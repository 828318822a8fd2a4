//! Breadth-first search through the states of a world.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::{Fingerprint, Trace, World};

/// Where a search stops.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most actions from the start.
    pub depth: u32,
    /// The most states: about 100 bytes of memory each.
    pub states: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        let (depth, states) = (u32::MAX, u32::MAX);
        Bounds { depth, states }
    }
}

/// What a search has covered.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Different states.
    pub states: u32,
    /// Actions applied to states.
    pub transitions: u64,
    /// States that were brought to their end: those where a run may end, and those at a bound.
    pub ends: u64,
    /// Actions on the shortest way to the farthest state.
    pub depth: u32,
    /// No bound was reached: all states of the world were visited.
    pub is_complete: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            states,
            transitions,
            ends,
            depth,
            is_complete,
            elapsed,
        } = self;
        let extent = if *is_complete { "complete" } else { "bounded" };
        write!(
            f,
            "{states} states, {transitions} transitions, {ends} ends, depth {depth}, {extent}, {:.1} s",
            elapsed.as_secs_f64()
        )
    }
}

/// A run that breaks a property.
#[derive(Clone)]
pub struct Counterexample {
    /// What is wrong.
    pub violation: String,
    /// The actions from the start, as places in [`World::actions`]: for [`replay`].
    pub choices: Vec<u32>,
    /// The actions in words, and those of [`World::finish`].
    pub actions: Vec<String>,
}

/// The violation and the actions, a line each.
impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.violation)?;
        for (number, action) in (1..).zip(&self.actions) {
            let marker = match number == self.choices.len() + 1 {
                true => " (from here on without faults)",
                false => "",
            };
            writeln!(f, "{number:5}. {action}{marker}")?;
        }
        write!(f, "replay: {:?}", self.choices)
    }
}

/// The text of [`Display`](fmt::Display), which `unwrap` prints.
impl fmt::Debug for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Counterexample {}

/// Visits all states of the world that `make` creates, nearest first, up to the bounds.
///
/// # Errors
///
/// The shortest run that breaks [`World::check`] or panics; a run that [`World::finish`] refuses; or a run that comes
/// back to a state that it was in, and therefore need never end.
pub fn explore<W: World>(
    make: impl Fn() -> W,
    bounds: Bounds,
) -> Result<Report, Box<Counterexample>> {
    let started = Instant::now();
    let mut search = Search {
        make,
        bounds,
        known: HashMap::new(),
        states: Vec::new(),
        edges: Vec::new(),
        ends: 0,
        is_complete: true,
    };
    let world = (search.make)();
    if let Err(violation) = world.check() {
        return Err(search.counterexample(violation, Vec::new(), End::NotReached));
    }
    search.visit(NONE, 0, &world);
    let mut at = 0;
    while at < search.states.len() as u32 {
        search.expand(at)?;
        at += 1;
    }
    search.check_cycles()?;
    Ok(Report {
        states: search.states.len() as u32,
        transitions: search.edges.len() as u64,
        ends: search.ends,
        depth: search.states.last().map_or(0, |state| state.depth),
        is_complete: search.is_complete,
        elapsed: started.elapsed(),
    })
}

/// Creates a world and applies the actions at these places of [`World::actions`].
///
/// # Panics
///
/// When a state has fewer actions than that: then this is another world, or one that is not deterministic.
pub fn replay<W: World>(make: impl Fn() -> W, choices: &[u32]) -> W {
    let mut world = make();
    let mut actions = Vec::new();
    for &choice in choices {
        step(&mut world, choice, &mut actions);
    }
    world
}

/// Applies the action at this place; `actions` is a buffer.
fn step<W: World>(world: &mut W, choice: u32, actions: &mut Vec<W::Action>) {
    actions.clear();
    world.actions(actions);
    let action = actions.get(choice as usize);
    world.apply(action.expect("equal runs lead to equal actions"));
}

const NONE: u32 = u32::MAX;

/// How a state was reached first.
struct State {
    parent: u32,
    choice: u32,
    depth: u32,
    /// Place in [`Search::edges`] of what the state's first action leads to.
    first_edge: usize,
}

/// What a counterexample says after its choices.
enum End {
    /// They break the property.
    NotReached,
    /// The way from there to the end does.
    Reached,
}

struct Search<F> {
    make: F,
    bounds: Bounds,
    /// Fingerprints of the states, with their places.
    known: HashMap<u128, u32>,
    states: Vec<State>,
    /// The states that actions lead to, by state and action.
    edges: Vec<u32>,
    ends: u64,
    is_complete: bool,
}

impl<W: World, F: Fn() -> W> Search<F> {
    /// Returns the place of the present state of a world.
    fn visit(&mut self, parent: u32, choice: u32, world: &W) -> u32 {
        let new = self.states.len() as u32;
        let at = *self.known.entry(fingerprint(world)).or_insert(new);
        if at == new {
            let before = self.states.get(parent as usize);
            self.states.push(State {
                parent,
                choice,
                depth: before.map_or(0, |before| before.depth + 1),
                first_edge: usize::MAX,
            });
        }
        at
    }

    /// Applies every action to a state, or brings it to its end.
    fn expand(&mut self, at: u32) -> Result<(), Box<Counterexample>> {
        let choices = self.choices(at);
        self.states[at as usize].first_edge = self.edges.len();
        let mut world = replay(&self.make, &choices);
        debug_assert_eq!(
            self.known.get(&fingerprint(&world)),
            Some(&at),
            "equal runs lead to equal states"
        );
        let mut actions = Vec::new();
        world.actions(&mut actions);
        let count = actions.len() as u32;
        let is_at_bound = choices.len() as u32 >= self.bounds.depth
            || self.states.len() as u32 >= self.bounds.states;
        if count == 0 || world.may_end() || is_at_bound {
            self.ends += 1;
            if let Err(violation) = caught(|| world.finish(&mut Trace::default())) {
                return Err(self.counterexample(violation, choices, End::Reached));
            }
            if count == 0 || is_at_bound {
                self.is_complete &= count == 0;
                return Ok(());
            }
            world = replay(&self.make, &choices);
        }
        for choice in 0..count {
            if choice > 0 {
                world = replay(&self.make, &choices);
            }
            let result = caught(|| {
                step(&mut world, choice, &mut actions);
                world.check()
            });
            if let Err(violation) = result {
                let choices = [&choices[..], &[choice]].concat();
                return Err(self.counterexample(violation, choices, End::NotReached));
            }
            let to = self.visit(at, choice, &world);
            self.edges.push(to);
        }
        Ok(())
    }

    /// The choices that lead to a state.
    fn choices(&self, at: u32) -> Vec<u32> {
        let mut choices = Vec::new();
        let mut state = &self.states[at as usize];
        while state.parent != NONE {
            choices.push(state.choice);
            state = &self.states[state.parent as usize];
        }
        choices.reverse();
        choices
    }

    /// The states that the actions of a state lead to.
    fn successors(&self, at: u32) -> &[u32] {
        let end = self.states.get(at as usize + 1);
        let end = end.map_or(self.edges.len(), |next| next.first_edge);
        &self.edges[self.states[at as usize].first_edge..end]
    }

    /// Looks for runs that come back to a state: takes away states without predecessors until none is left.
    fn check_cycles(&self) -> Result<(), Box<Counterexample>> {
        let mut predecessors = vec![0u32; self.states.len()];
        for &to in &self.edges {
            predecessors[to as usize] += 1;
        }
        let mut free: Vec<u32> = (0..self.states.len() as u32)
            .filter(|&at| predecessors[at as usize] == 0)
            .collect();
        let mut taken = 0;
        while let Some(at) = free.pop() {
            taken += 1;
            for &to in self.successors(at) {
                predecessors[to as usize] -= 1;
                if predecessors[to as usize] == 0 {
                    free.push(to);
                }
            }
        }
        if taken == self.states.len() {
            return Ok(());
        }
        let (start, cycle) = self.cycle(|at| predecessors[at as usize] > 0);
        let before = self.choices(start);
        let violation = format!(
            "the run need not end: after {} actions it is in the state that it was in after {}",
            before.len() + cycle.len(),
            before.len()
        );
        let choices = [before, cycle].concat();
        Err(self.counterexample(violation, choices, End::NotReached))
    }

    /// Returns the nearest state of a cycle among the states that are left, and the choices around it. Each of these has a
    /// predecessor among them.
    fn cycle(&self, is_left: impl Fn(u32) -> bool) -> (u32, Vec<u32>) {
        let mut before: HashMap<u32, (u32, u32)> = HashMap::new();
        for at in (0..self.states.len() as u32).filter(|&at| is_left(at)) {
            for (choice, &to) in (0..).zip(self.successors(at)) {
                before.insert(to, (at, choice));
            }
        }
        let mut on_way = Vec::new();
        let mut at = *before.keys().min().expect("a state is left");
        while !on_way.contains(&at) {
            on_way.push(at);
            at = before[&at].0;
        }
        let start = on_way.iter().position(|&other| other == at);
        let on_cycle = &on_way[start.expect("it is there")..];
        let start = *on_cycle.iter().min().expect("the cycle has a state");
        let mut choices = Vec::new();
        let mut at = start;
        while choices.is_empty() || at != start {
            let (from, choice) = before[&at];
            choices.push(choice);
            at = from;
        }
        choices.reverse();
        (start, choices)
    }

    /// Puts a run that breaks a property into words.
    fn counterexample(
        &self,
        violation: String,
        choices: Vec<u32>,
        end: End,
    ) -> Box<Counterexample> {
        let mut world = (self.make)();
        let mut lines = Vec::new();
        let mut actions = Vec::new();
        let mut left = choices.iter().peekable();
        while let Some(&choice) = left.next() {
            actions.clear();
            world.actions(&mut actions);
            lines.push(world.describe(&actions[choice as usize]));
            if left.peek().is_some() || matches!(end, End::Reached) {
                world.apply(&actions[choice as usize]);
            }
        }
        if let End::Reached = end {
            let mut trace = Trace::recording();
            // It breaks the same property again.
            let _ = caught(|| world.finish(&mut trace));
            lines.extend(trace.lines());
        }
        Box::new(Counterexample {
            violation,
            choices,
            actions: lines,
        })
    }
}

fn fingerprint<W: World>(world: &W) -> u128 {
    let mut fingerprint = Fingerprint::new();
    world.fingerprint(&mut fingerprint);
    fingerprint.finish()
}

/// Turns a panic into a violation.
fn caught(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    // A world that has panicked is not used again.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
