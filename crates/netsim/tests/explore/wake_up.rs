//! A lost wake-up between two threads: a world without packets and time.

use netsim::explore::{Bounds, Fingerprint, Trace, World, explore};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Producer {
    Push,
    Wake,
    Done,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Consumer {
    Check,
    /// Has found the queue empty, and goes to sleep.
    FoundEmpty,
    /// Has announced that it will sleep, and checks again.
    CheckAgain,
    Asleep,
    Done,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Producer,
    Consumer,
}

#[derive(Debug)]
struct Threads {
    /// The consumer announces that it will sleep before it looks for the last time.
    is_right: bool,
    items: u32,
    will_sleep: bool,
    producer: Producer,
    consumer: Consumer,
}

impl World for Threads {
    type Action = Step;

    fn actions(&self, actions: &mut Vec<Step>) {
        if self.producer != Producer::Done {
            actions.push(Step::Producer);
        }
        if !matches!(self.consumer, Consumer::Asleep | Consumer::Done) {
            actions.push(Step::Consumer);
        }
    }

    fn may_end(&self) -> bool {
        self.producer == Producer::Done
            && matches!(self.consumer, Consumer::Asleep | Consumer::Done)
    }

    fn apply(&mut self, action: &Step) {
        let is_empty = self.items == 0;
        match (action, self.producer, self.consumer) {
            (Step::Producer, Producer::Push, _) => {
                self.items += 1;
                self.producer = Producer::Wake;
            }
            (Step::Producer, ..) => {
                if self.will_sleep {
                    self.will_sleep = false;
                    self.consumer = Consumer::Check;
                }
                self.producer = Producer::Done;
            }
            (_, _, Consumer::Check) if is_empty && self.is_right => {
                self.will_sleep = true;
                self.consumer = Consumer::CheckAgain;
            }
            (_, _, Consumer::Check) if is_empty => self.consumer = Consumer::FoundEmpty,
            (_, _, Consumer::CheckAgain) if is_empty => self.consumer = Consumer::Asleep,
            (_, _, Consumer::FoundEmpty) => {
                self.will_sleep = true;
                self.consumer = Consumer::Asleep;
            }
            _ => {
                self.items -= 1;
                self.will_sleep = false;
                self.consumer = Consumer::Done;
            }
        }
    }

    fn describe(&self, action: &Step) -> String {
        format!("{action:?}: {:?}, {:?}", self.producer, self.consumer)
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug(self);
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn finish(&mut self, _trace: &mut Trace) -> Result<(), String> {
        match self.consumer {
            Consumer::Done => Ok(()),
            consumer => Err(format!("{} items, consumer {consumer:?}", self.items)),
        }
    }
}

fn threads(is_right: bool) -> Threads {
    Threads {
        is_right,
        items: 0,
        will_sleep: false,
        producer: Producer::Push,
        consumer: Consumer::Check,
    }
}

#[test]
fn a_lost_wake_up_is_found() {
    let example = explore(|| threads(false), Bounds::default()).expect_err("a defect");
    assert_eq!(example.violation, "1 items, consumer Asleep");
    assert_eq!(example.choices.len(), 4, "{example}");
}

#[test]
fn with_a_second_look_nothing_is_lost() {
    let report = explore(|| threads(true), Bounds::default()).expect("no defect");
    assert!(report.is_complete && report.states > 5, "{report}");
}
