//! A client that submits one task, again and again until a hub has said that it is durable: how long a hub is away.

use super::hosts::TAG;
use crate::error::{Context, Error, Result};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use wire::flow::Paths;
use wire::message::work::{JobAsk, JobAskKind, JobOpen, JobSubmit, JobTold};
use wire::message::{Hello, OpenKind};
use wire::{Endpoint, Hold, Key, Pauses, Role, Token, Whereabouts};

/// The client, with a runtime of its own.
pub struct Probe {
    runtime: Runtime,
    endpoint: Endpoint,
    hub: Arc<Whereabouts>,
    secret: Bytes,
}

impl Probe {
    /// Redeems a token at its first try. The hubs are at these addresses.
    pub fn new(token: &str, addresses: &[&str]) -> Result<Self> {
        let failed = |what: String| Error::Product(format!("the probe: {what}"));
        let token = Token::parse(token).map_err(|error| failed(error.to_string()))?;
        let addresses = addresses.iter().map(|address| address.parse::<SocketAddr>());
        let addresses = addresses.collect::<std::result::Result<_, _>>().map_err(|error| failed(error.to_string()))?;
        let runtime = Runtime::new().context(|| "cannot start an async runtime".to_owned())?;
        let within = runtime.enter();
        let endpoint = Endpoint::new(&Key::generate(), Hold::Long).map_err(|error| failed(error.to_string()))?;
        drop(within);
        let hub = Arc::new(Whereabouts::new(token.hub, addresses));
        Ok(Self { runtime, endpoint, hub, secret: Bytes::copy_from_slice(&token.secret) })
    }

    /// Submits a task until a hub of an epoch after this one has acknowledged it; gives that hub's epoch, and how long all took.
    pub fn submit(&self, after: u64, limit: Duration) -> Result<(u64, Duration)> {
        let begun = Instant::now();
        let trying = async {
            let mut pauses = Pauses::default();
            loop {
                match self.once(after).await {
                    Ok(epoch) => return epoch,
                    Err(why) => eprintln!("probe: after {:.2} s: {why}", begun.elapsed().as_secs_f64()),
                }
                tokio::time::sleep(pauses.next_pause().min(Duration::from_millis(250))).await;
            }
        };
        let done = self.runtime.block_on(async { tokio::time::timeout(limit, trying).await });
        let epoch = done.map_err(|_| Error::Product(format!("no hub took a task within {limit:?}")))?;
        Ok((epoch, begun.elapsed()))
    }

    async fn once(&self, after: u64) -> std::result::Result<u64, String> {
        let hello = Hello {
            role: Role::Client.number().into(),
            name: "probe".into(),
            instance: rand::random(),
            secret: self.secret.clone(),
            ..Hello::default()
        };
        let joined = self.hub.dial(&self.endpoint, |_| Paths::default(), hello).await;
        let joined = joined.map_err(|error| error.to_string())?;
        let epoch = joined.welcome.epoch;
        if epoch <= after {
            return Err(format!("the hub of epoch {epoch} still answers"));
        }
        let lost = |error: wire::WireError| error.to_string();
        let (mut sender, mut receiver) = joined.connection.open(OpenKind::Jobs(true)).await.map_err(lost)?;
        let key: [u8; 16] = rand::random();
        let open = JobOpen {
            key: Bytes::copy_from_slice(&key),
            name: "probe".into(),
            cpus: 1,
            tags: TAG,
            quorum: 1,
            errors_max: 10,
            instances_max: 12,
            cost_ms: 1,
            failures_max: u32::MAX,
            ..JobOpen::default()
        };
        let mut ask = async |kind| {
            sender.send(&JobAsk { kind: Some(kind) }).await.map_err(lost)?;
            let told = receiver.next::<JobTold>().await.map_err(lost)?.ok_or("no answer")?;
            if told.refusal.is_empty() { Ok(told) } else { Err(told.refusal) }
        };
        let job = ask(JobAskKind::Open(open)).await?.job;
        let submit = JobSubmit { job, first: 0, count: 1, inputs: vec![Bytes::new()], ..JobSubmit::default() };
        let told = ask(JobAskKind::Submit(submit)).await?;
        joined.connection.close("it is durable");
        if told.tasks == 1 { Ok(epoch) } else { Err(format!("it has {} tasks", told.tasks)) }
    }
}
