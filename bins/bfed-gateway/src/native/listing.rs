//! The list of sessions as JSON, format 1 (`docs/manual/session-list.md`): at `/sessions` of HTTP servers and of the status
//! page. One row for each flow.

use bfed::SessionName;
use bfed::name::Owner;
use serde_json::{Map, Value, json};

use super::announce::parameter;

/// Version of the format. It changes when a key is removed or gets another meaning; keys may be added at any time.
const FORMAT: u32 = 1;
/// Most rows.
pub(crate) const MAX_LISTED: usize = 1000;

/// A flow that members of the native network receive here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PresentedFlow {
    /// The session.
    pub session: SessionName,
    /// Number of the flow in it, from 0.
    pub flow: usize,
    /// Where it is received.
    pub address: String,
    /// Content type with codecs, where the network knows it.
    pub mime: Option<String>,
    /// Number of readers, where the network knows it.
    pub readers: Option<usize>,
    /// Number of viewers: readers, addresses that ask for the playlist of HLS, and subscribers of MoQ.
    pub viewers: Option<usize>,
}

/// The keys of a flow that its session's name tells.
pub(crate) fn row(session: &SessionName, flow: usize) -> Map<String, Value> {
    let owner = match session.owner() {
        Owner::Number(number) => json!(number.get()),
        Owner::Name(name) => json!(name),
    };
    let media = parameter(session, "media");
    let media = media.and_then(|media| media.split(',').nth(flow).map(str::to_owned));
    let content = match session.content() {
        bfed::Content::Bulk => "bulk-data",
        bfed::Content::RealTime => "real-time",
    };
    let row = json!({
        "session": session.as_str(),
        "title": parameter(session, "title"),
        "owner": owner,
        "content": content,
        "multi_source": session.multi_source(),
        "flow": flow,
        "flow_name": session.flows().nth(flow),
        "flows": session.flow_count(),
        "media": media.filter(|media| !media.is_empty()),
        "mime": null,
        "address": null,
        "readers": null,
        "viewers": null,
        "announced_by": null,
    });
    match row {
        Value::Object(row) => row,
        _ => Map::new(),
    }
}

impl PresentedFlow {
    /// Returns the row of the flow.
    pub(crate) fn row(&self) -> Map<String, Value> {
        let mut row = row(&self.session, self.flow);
        row.insert("address".to_owned(), json!(self.address));
        row.insert("mime".to_owned(), json!(self.mime));
        row.insert("readers".to_owned(), json!(self.readers));
        row.insert("viewers".to_owned(), json!(self.viewers));
        row
    }
}

/// The list: the network that it is of, where clients ask for sessions, and the rows.
pub(crate) fn document(
    network: u32,
    kind: &str,
    mediator: Option<&str>,
    mut rows: Vec<Map<String, Value>>,
) -> Value {
    let complete = rows.len() <= MAX_LISTED;
    rows.truncate(MAX_LISTED);
    json!({
        "format": FORMAT,
        "network": network,
        "kind": kind,
        "mediator": mediator,
        "complete": complete,
        "sessions": rows,
    })
}
