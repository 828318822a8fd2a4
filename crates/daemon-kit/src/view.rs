//! The tables that `top` shows, and where the status documents hold their values.

/// What `top` shows of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The program.
    pub program: &'static str,
    /// The values above the tables; pointers begin with the document, `/overview` or `/counters`.
    pub head: &'static [Column],
    /// The tables; Tab selects the next.
    pub tables: &'static [Table],
}

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its title, which is also the name of the document.
    pub name: &'static str,
    /// Where its rows come from.
    pub rows: Rows,
    /// Its columns.
    pub columns: &'static [Column],
}

impl Table {
    /// Creates a table of the list that the document has under its own name.
    pub const fn list(name: &'static str, columns: &'static [Column]) -> Self {
        let rows = Rows::List;
        Table {
            name,
            rows,
            columns,
        }
    }

    /// Every counter of the document `counters` that is not 0.
    pub const COUNTERS: Table = Table {
        name: "counters",
        rows: Rows::Counters,
        columns: &[
            Column::new("counter", "/name", Kind::Name),
            Column::new("count", "/count", Kind::Number),
            Column::new("per second", "/count", Kind::Rate),
        ],
    };
}

/// Where the rows of a table come from.
#[derive(Clone, Copy, Debug)]
pub enum Rows {
    /// The elements of the list that the document has under its own name.
    List,
    /// Every counter of the document that is not 0: its name, its value, its change per second.
    Counters,
}

/// One value.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its title.
    pub name: &'static str,
    /// Its place in the row, as a JSON pointer.
    pub pointer: &'static str,
    /// How it is shown.
    pub kind: Kind,
}

impl Column {
    /// Creates a column.
    pub const fn new(name: &'static str, pointer: &'static str, kind: Kind) -> Self {
        Column {
            name,
            pointer,
            kind,
        }
    }
}

/// How a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text that identifies the row.
    Name,
    /// A text that may change.
    State,
    /// A number.
    Number,
    /// Bits per second, with a unit prefix.
    Bits,
    /// A counter, or the sum of those of an object, as its change per second.
    Rate,
    /// Seconds, as a duration.
    Seconds,
}

impl Kind {
    /// Returns whether its columns are aligned left and sorted from A to Z.
    #[cfg(feature = "top")]
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Kind::Name | Kind::State)
    }
}
