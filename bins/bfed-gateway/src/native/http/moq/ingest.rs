//! A broadcast of a publisher or of a relay as the source of a session.

use std::sync::Arc;

use bfed::SessionName;
use moq_net::{Error, broadcast, track};

use tokio::time::timeout;

use super::super::edge::{SOURCE_SILENCE, Source, publish};
use super::super::hub::Key;
use super::groups::Joiner;
use super::library::{Library, add};

/// Reads one flow of a broadcast into the hub, until the track ends.
pub(super) async fn flow(
    library: &Library,
    key: &Key,
    session: &SessionName,
    broadcast: &broadcast::Consumer,
) -> Result<(), Error> {
    let source = broadcast.track(&key.1.to_string())?;
    let wanted = track::Subscription::default().with_max_age(library.max_age);
    let mut groups = source.subscribe(wanted).await?.ordered();
    let Ok(_source) = Source::new(&library.shared, key, session, None) else {
        return Err(Error::Duplicate);
    };
    let mut joiner = Joiner::default();
    // A source that says nothing leaves its place to another.
    let silent = |_| Error::Timeout;
    while let Some(mut group) = timeout(SOURCE_SILENCE, groups.next_group())
        .await
        .map_err(silent)??
    {
        let sequence = group.sequence;
        let read = async {
            let first = timeout(SOURCE_SILENCE, group.read_frame()).await;
            let Some(header) = first.map_err(silent)?? else {
                return Ok(());
            };
            let Some(before) = joiner.begin(sequence, &header.payload) else {
                add(&library.counts.malformed);
                return Ok(());
            };
            let content = session.content();
            publish(&library.shared, key, content, before.into()).await;
            while let Some(frame) = timeout(SOURCE_SILENCE, group.read_frame())
                .await
                .map_err(silent)??
            {
                publish(&library.shared, key, content, frame.payload).await;
            }
            joiner.end(sequence);
            Ok::<(), Error>(())
        };
        // A group that is late or was reset is lost; the stream continues with the next one.
        if let Err(error) = read.await {
            tracing::debug!(session = %key.0, sequence, %error, "group lost");
        }
    }
    Ok(())
}

/// Reads all flows of a broadcast, until one of them ends.
pub(super) async fn session(
    library: Arc<Library>,
    session: SessionName,
    broadcast: broadcast::Consumer,
) -> Result<(), Error> {
    let mut flows = tokio::task::JoinSet::new();
    for at in 0..session.flow_count() {
        let (library, session, broadcast) =
            (Arc::clone(&library), session.clone(), broadcast.clone());
        let key = (session.as_str().to_owned(), at);
        flows.spawn(async move { flow(&library, &key, &session, &broadcast).await });
    }
    match flows.join_next().await {
        Some(Ok(result)) => result,
        _ => Err(Error::Closed),
    }
}
