//! Tasks of which a client has been told a part: it was sent output, and not yet the end. Their commands can begin nowhere else, so a hub
//! that is told to end first passes on the end of those that are about to.

use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;

/// How long a hub that is told to end waits for all of them …
const LINGER: Duration = Duration::from_secs(1);
/// … and for a client to say that it has the end of one.
const ARRIVAL: Duration = Duration::from_millis(500);

/// Those of one hub.
#[derive(Debug, Default)]
pub struct HalfTold {
    count: watch::Sender<usize>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub struct One<'a>(&'a HalfTold);

impl HalfTold {
    /// There is one more.
    pub fn one(&self) -> One<'_> {
        self.count.send_modify(|count| *count += 1);
        One(self)
    }

    /// The hub is about to end: waits until there are none, at most for a moment.
    pub async fn end(&self) {
        let mut count = self.count.subscribe();
        let _ = tokio::time::timeout(LINGER, count.wait_for(|count| *count == 0)).await;
    }
}

impl One<'_> {
    /// Its end was sent: it is one until that has arrived, at most for a moment.
    pub async fn told(self, arrived: impl Future<Output = ()>) {
        let _ = tokio::time::timeout(ARRIVAL, arrived).await;
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_hub_ends_when_all_were_told() {
        let told = HalfTold::default();
        let begun = Instant::now();
        told.end().await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waits");
        let (short, long) = (told.one(), told.one());
        let wait = Duration::from_millis(300);
        let ends = async {
            tokio::time::sleep(wait).await;
            short.told(async {}).await;
            long.told(std::future::pending()).await;
        };
        tokio::join!(told.end(), ends);
        assert_eq!(begun.elapsed(), wait + ARRIVAL);
        let _forever = told.one();
        told.end().await;
        assert_eq!(begun.elapsed(), wait + ARRIVAL + LINGER, "but not for ever");
    }
}
