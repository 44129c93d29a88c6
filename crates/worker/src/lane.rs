//! The lane of its client's mirror that a task gets.

use crate::clients::Client;
use crate::fuse::{LaneError, LaneGuard};
use crate::mirrors::ApplyError;
use crate::request::Request;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::message::{Failed, FailedKind};

/// Launches of one view come over different streams: how long one waits for the one before it.
const GAP_LIMIT: Duration = Duration::from_secs(5);
const GAP_PAUSE: Duration = Duration::from_millis(1);
/// How often a lane at the newest version is asked for, while launches bring newer ones.
const LANE_TRIES: u32 = 20;

/// Takes it at the launch's version. Waits a little for steps of the view that come over slower streams.
pub(crate) async fn take(client: &Arc<Client>, request: &Request) -> Result<LaneGuard, Failed> {
    let gap = |why: String| FailedKind::ViewGap.because(why);
    let deadline = Instant::now() + GAP_LIMIT;
    client.contents.expect(&request.update.set);
    let mirror = loop {
        match client.mirrors.apply(&request.update) {
            Ok(mirror) => break mirror,
            Err(ApplyError::Gap(error)) if Instant::now() > deadline => return Err(gap(error.to_string())),
            Err(ApplyError::Gap(_)) => tokio::time::sleep(GAP_PAUSE).await,
            Err(error @ ApplyError::Mount(_)) => return Err(FailedKind::Trouble.because(error.to_string())),
        }
    };
    let (view, task) = (request.update.view, request.task);
    if let Some(lane) = mirror.take_ready_lane(view, mirror.version(view).unwrap_or_default(), task) {
        return Ok(lane);
    }
    let take = move || {
        // A launch that came after this one may have brought a newer version, which is as good for this task; and may do
        // so again between the two steps here.
        let mut tries = 0..LANE_TRIES;
        loop {
            let version = mirror.version(view).unwrap_or_default();
            match mirror.take_lane(view, version, task) {
                Err(LaneError::View(_)) if tries.next().is_some() => {}
                taken => return taken,
            }
        }
    };
    let taken = tokio::task::spawn_blocking(take).await;
    match taken {
        Ok(Ok(lane)) => Ok(lane),
        Ok(Err(LaneError::View(error))) => Err(gap(error.to_string())),
        Ok(Err(error)) => Err(FailedKind::Trouble.because(error.to_string())),
        Err(error) => Err(FailedKind::Trouble.because(format!("the mirror failed: {error}"))),
    }
}
