//! Pipes in the kernel, through which bytes move between sockets without a copy (`splice`).
//!
//! A program that only reads the headers of what it forwards moves the payloads as references to the kernel's own
//! pages: [`Pipe::fill`] takes them from a socket, [`Pipe::read`] copies a header out, [`Pipe::transfer`] and
//! [`Pipe::duplicate`] put together what is sent, and [`Pipe::drain`] passes it to another socket.
//!
//! A pipe holds a bounded number of pieces (one for each 4 KiB of its size), however short they are: it may be full with
//! fewer bytes than its size.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use crate::sys;

/// A pipe of this process, which knows how many bytes it holds. No call blocks.
#[derive(Debug)]
pub struct Pipe {
    read: File,
    write: File,
    len: usize,
}

impl Pipe {
    /// Opens a pipe of this size in bytes.
    ///
    /// # Errors
    /// No descriptors are left, or the user's pipes are larger than `fs.pipe-user-pages-soft` or
    /// `fs.pipe-max-size` allow.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let (read, write) = sys::pipe::open()?;
        sys::pipe::resize(&write, bytes)?;
        Ok(Self {
            read: read.into(),
            write: write.into(),
            len: 0,
        })
    }

    /// Bytes in the pipe.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves up to `most` bytes from a socket into the pipe. Returns their number; 0 when the stream has ended.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] when nothing has arrived or the pipe is full; [`ErrorKind::InvalidInput`] when the
    /// kernel cannot splice from this descriptor; the stream's own.
    pub fn fill(&mut self, from: &impl AsFd, most: usize) -> io::Result<usize> {
        let moved = sys::pipe::splice(from, &self.write, most)?;
        self.len += moved;
        Ok(moved)
    }

    /// Moves up to `most` bytes to a socket. Returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] when the socket takes none; [`ErrorKind::InvalidInput`] when the kernel cannot
    /// splice to this descriptor; the stream's own. A process that does not ignore SIGPIPE gets it when the other side
    /// of the stream has closed it.
    pub fn drain(&mut self, to: &impl AsFd, most: usize) -> io::Result<usize> {
        if most.min(self.len) == 0 {
            return Ok(0);
        }
        let moved = sys::pipe::splice(&self.read, to, most.min(self.len))?;
        self.len -= moved;
        Ok(moved)
    }

    /// Moves up to `most` bytes to another pipe. Returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] when the other pipe is full.
    pub fn transfer(&mut self, to: &mut Pipe, most: usize) -> io::Result<usize> {
        if most.min(self.len) == 0 {
            return Ok(0);
        }
        let moved = sys::pipe::splice(&self.read, &to.write, most.min(self.len))?;
        self.len -= moved;
        to.len += moved;
        Ok(moved)
    }

    /// Puts the first `most` bytes into another pipe, too. Returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] when the other pipe is full.
    pub fn duplicate(&self, to: &mut Pipe, most: usize) -> io::Result<usize> {
        let moved = sys::pipe::tee(&self.read, &to.write, most)?;
        to.len += moved;
        Ok(moved)
    }

    /// Copies bytes out of the pipe: as many as the buffer has room for, or all.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() && self.len > 0 {
            match self.read.read(&mut buffer[read..]) {
                Ok(0) => break,
                Ok(len) => {
                    read += len;
                    self.len -= len.min(self.len);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// Copies bytes into the pipe. Returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] when the pipe is full.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write.write(bytes)?;
        self.len += written;
        Ok(written)
    }
}
