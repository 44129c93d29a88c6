//! What a task is told beside its input once it has started: readers that are gone, and signals that came before.

use crate::exchange::{Exchange, SIGTSTP};
use crate::outputs::Stream;
use crate::run::Outcome;
use wire::message::InputKind;

const SIGHUP: u32 = 1;

impl Exchange<'_> {
    /// Says what had to wait for the start.
    pub(crate) async fn on_started(&mut self) {
        for stream in self.session.unread.clone() {
            self.tell_unread(stream).await;
        }
        for signal in std::mem::take(&mut self.session.held_signals) {
            self.tell(InputKind::Signal(signal.into())).await;
        }
        if self.session.caller_stopped {
            self.tell(InputKind::Signal(SIGTSTP.into())).await;
        }
    }

    /// Nobody reads this output any more.
    pub(crate) async fn on_closed(&mut self, stream: Stream) -> Option<Outcome> {
        self.session.unread.push(stream);
        // Before the start any word but of the terminal's size would end the task.
        if self.started {
            self.tell_unread(stream).await;
        }
        None
    }

    async fn tell_unread(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.tell(InputKind::OutputClosed(1)).await,
            Stream::Stderr => self.tell(InputKind::OutputClosed(2)).await,
            // A terminal that is gone hangs up, as it would here.
            Stream::Terminal => self.tell(InputKind::Signal(SIGHUP)).await,
        }
    }
}
