//! The memory of a model: loom's atomics, which have no fixed layout and cannot lie in mapped memory.

use ldc_ring::{Entry, Heap, Shape};
use loom::sync::{Arc, Mutex};

use crate::error::InitError;
use crate::sync::AtomicU32;

pub(crate) type Producer = ldc_ring::Producer<Heap, Box<[Entry]>>;
pub(crate) type Consumer = ldc_ring::Consumer<Heap, Box<[u32]>>;

/// A ring's consumer until it attaches, and the number of slots that the sender waits for.
#[derive(Clone)]
pub struct Memory(Arc<(Mutex<Option<Consumer>>, AtomicU32)>);

impl Memory {
    pub(crate) fn create(shape: Shape) -> Result<(Memory, Producer), InitError> {
        let (producer, consumer) = ldc_ring::channel(shape);
        let parts = (Mutex::new(Some(consumer)), AtomicU32::new(0));
        Ok((Memory(Arc::new(parts)), producer))
    }

    pub(crate) fn attach(&self) -> Result<Consumer, InitError> {
        let consumer = self.0.0.lock().expect("no panic").take();
        Ok(consumer.expect("one consumer"))
    }

    pub(crate) fn requested(&self, _shape: Shape) -> &AtomicU32 {
        &self.0.1
    }
}
