//! The flow as quinn's congestion controller, with a handle for those who remember what it learns.

use super::machine::{Flow, Nanos, Path};
use crate::lock;
use quinn::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// What one connection's flow knows, to be read and corrected from outside.
#[derive(Clone, Debug)]
pub(crate) struct FlowHandle {
    flow: Arc<Mutex<Flow>>,
    epoch: Instant,
    known: Option<Path>,
}

/// Makes the controllers of one connection: one at its start, another when it moves to another network.
#[derive(Debug)]
pub(crate) struct FlowFactory(FlowHandle);

struct Control {
    handle: FlowHandle,
    first_window: u64,
}

impl FlowHandle {
    /// For a path of which this was remembered.
    pub fn new(known: Option<Path>) -> Self {
        let flow = Arc::new(Mutex::new(Flow::new(BASE_MTU, known)));
        Self { flow, epoch: Instant::now(), known }
    }

    /// What has been learnt of the path.
    pub fn path(&self) -> Option<Path> {
        self.flow().path()
    }

    /// Whether that is the link's rate, and not only what there was to send.
    pub fn is_trained(&self) -> bool {
        self.flow().is_trained()
    }

    /// Goes by what was known of the path before.
    pub fn remember(&self, path: Path) {
        self.flow().remember(path);
    }

    /// Takes what other traffic leaves, from now on.
    pub fn give_way(&self) {
        self.flow().give_way();
    }

    /// Begins anew: the path is another one, of which this was remembered.
    pub fn restart(&self, known: Option<Path>) {
        let mut flow = self.flow();
        *flow = flow.on_another_path(known);
    }

    pub fn factory(&self) -> Arc<FlowFactory> {
        Arc::new(FlowFactory(self.clone()))
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        lock(&self.flow)
    }

    fn nanos(&self, at: Instant) -> Nanos {
        // A flow takes zero for never.
        at.duration_since(self.epoch).as_nanos() as Nanos + 1
    }
}

/// What every path takes, bytes of UDP payload.
const BASE_MTU: u64 = 1200;

impl ControllerFactory for FlowFactory {
    fn build(self: Arc<Self>, _now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let handle = self.0.clone();
        let mut flow = handle.flow();
        *flow = flow.anew(current_mtu.into(), handle.known);
        let first_window = flow.window();
        drop(flow);
        Box::new(Control { handle, first_window })
    }
}

impl Controller for Control {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.handle.flow().on_sent(self.handle.nanos(now), bytes);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, _rtt: &quinn_proto::RttEstimator) {
        let (now, sent) = (self.handle.nanos(now), self.handle.nanos(sent));
        self.handle.flow().on_acked(now, sent, bytes, app_limited);
    }

    fn on_end_acks(&mut self, _now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        self.handle.flow().set_in_flight(in_flight);
    }

    fn on_congestion_event(&mut self, _now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        // A congestion mark (ECN) comes as no bytes lost, and is not answered: queues are seen by their delay.
        self.handle.flow().on_lost(self.handle.nanos(sent), lost_bytes, is_persistent);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.handle.flow().set_mtu(new_mtu.into());
    }

    fn window(&self) -> u64 {
        self.handle.flow().window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { handle: self.handle.clone(), first_window: self.first_window })
    }

    fn initial_window(&self) -> u64 {
        self.first_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
