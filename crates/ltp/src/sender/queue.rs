//! Answers that wait for the rate: no host that asks much keeps those of others from being sent.
//!
//! A host may use the whole queue while nobody else does. When the queue is full, the answer to a host with fewer takes
//! the place of the newest one to the host with the most. Hosts take turns in being answered. An answer to an address
//! that may be forged gives way to every other answer, and none to it.

use core::net::IpAddr;

use super::answers::Answer;

/// Answers that may wait.
const CAPACITY: usize = 32;

/// What became of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    Waits,
    /// It waits in place of another one, which is lost.
    Replaces,
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct AnswerQueue {
    waiting: heapless::Deque<Answer, CAPACITY>,
    /// The host that was answered last; `None`: the group, or nobody yet.
    last: Option<IpAddr>,
}

impl AnswerQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, answer: Answer) -> Pushed {
        let Err(answer) = self.waiting.push_back(answer) else {
            return Pushed::Waits;
        };
        let Some(at) = self.giving_way_to(&answer) else {
            return Pushed::Refused;
        };
        self.remove(at);
        let _ = self.waiting.push_back(answer);
        Pushed::Replaces
    }

    /// Returns the place of the newest answer that gives way to this one.
    fn giving_way_to(&self, answer: &Answer) -> Option<usize> {
        let is_unproven = answer.is_unproven();
        let any_unproven = self.waiting.iter().any(Answer::is_unproven);
        if is_unproven && !any_unproven {
            return None;
        }
        let candidates = || {
            let all = self.waiting.iter().enumerate();
            all.filter(|(_, other)| !any_unproven || other.is_unproven())
        };
        let count = |host| {
            candidates()
                .filter(|(_, other)| other.host() == host)
                .count()
        };
        let hosts = candidates().map(|(_, other)| other.host());
        let busiest = hosts.max_by_key(|host| count(*host))?;
        let is_unfair = count(busiest) > count(answer.host()) + 1;
        let (newest, _) = candidates().rfind(|(_, other)| other.host() == busiest)?;
        (is_unfair || any_unproven && !is_unproven).then_some(newest)
    }

    fn remove(&mut self, at: usize) -> Option<Answer> {
        let mut removed = None;
        for place in 0..self.waiting.len() {
            let answer = self.waiting.pop_front()?;
            if place == at {
                removed = Some(answer);
            } else {
                let _ = self.waiting.push_back(answer);
            }
        }
        removed
    }

    /// Returns the place of the next answer: the first one to another host than the last, if there is one.
    fn turn(&self) -> usize {
        let is_other = |answer: &Answer| answer.host() != self.last;
        self.waiting.iter().position(is_other).unwrap_or(0)
    }

    /// Returns the answer whose turn it is.
    pub(super) fn next(&self) -> Option<&Answer> {
        self.waiting.iter().nth(self.turn())
    }

    /// Takes the answer whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Answer> {
        let answer = self.remove(self.turn())?;
        self.last = answer.host();
        Some(answer)
    }
}

#[cfg(test)]
mod tests;
