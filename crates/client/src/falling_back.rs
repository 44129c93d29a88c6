//! What becomes of a command whose run elsewhere came to nothing: it begins again, or runs here, unless somebody would notice.

use crate::plan::now_seconds;
use crate::record::Record;
use crate::run::{CODE_FAILED, Session};
use crate::unable;
use base::door::Reply;
use base::watch::{USES_NETWORK, used_descriptor};

impl Session {
    /// Whether another attempt can take up where the last one broke off.
    pub(crate) fn can_repeat(&self) -> bool {
        let talked = self.terminal.delivered() > 0;
        !talked && self.input.can_repeat() && !self.may_have_begun
    }

    /// It cannot be done elsewhere, which the next one of the kind knows.
    pub(crate) async fn called_off(&mut self, why: String, record: &mut Record) -> Reply {
        let (kind, why) = match used_descriptor(&why) {
            Some(number) => {
                (self.plan.unable.with_descriptors(), unable::naming(&why, number, &self.options.descriptors))
            }
            None => (self.plan.unable, why),
        };
        record.note(format!("called off: {why}"));
        self.settle_input().await;
        self.daemon.unable.note(&kind, &why, self.is_noticed(), now_seconds());
        let of_network = why.starts_with(USES_NETWORK).then(|| match self.plan.write.grants_network() {
            Some(true) => "it has the network from the next time on, as the project's file grants it",
            Some(false) => {
                "with --net it may use the network from a worker; for the project: network = true in .gleaner.toml, then gleaner trust"
            }
            None => "with --net it may use the network from a worker",
        });
        let remedy = record.kept_back().last().map(|kept| kept.denial.remedy()).or(of_network);
        let mut reply = self.fall_back(why).await;
        if let (Reply::Failed { message, .. }, Some(remedy)) = (&mut reply, remedy) {
            message.push_str(&format!("; {remedy}"));
        }
        reply
    }

    /// It cannot be done elsewhere now; the next one of the kind may be.
    pub(crate) async fn called_off_now(&mut self, why: String, record: &mut Record) -> Reply {
        record.note(format!("called off: {why}"));
        self.fall_back(why).await
    }

    /// Whether anybody can know that it ran elsewhere.
    pub(crate) fn is_noticed(&self) -> bool {
        let delivered = self.stdout.delivered() + self.stderr.delivered() + self.terminal.delivered();
        delivered > 0 || self.input.is_touched() || self.may_have_begun
    }

    /// Reads no more of its input. What was being read counts as read: a run here would not find it.
    async fn settle_input(&mut self) {
        self.stop.stop();
        self.input.settle().await;
    }

    /// Runs it here, if nobody has noticed yet that it ran elsewhere.
    pub(crate) async fn fall_back(&mut self, why: String) -> Reply {
        self.settle_input().await;
        if self.is_noticed() {
            let seen = match self.may_have_begun {
                true => "what may use the network is begun once only",
                false => "part of its output was delivered or part of its input read",
            };
            let message =
                format!("{why}\n  nothing was committed; it cannot be run here now, for {seen}: run it again");
            return Reply::Failed { message, code: CODE_FAILED };
        }
        match self.options.no_local {
            false => Reply::RunHere { why },
            true => Reply::Failed { message: format!("{why}\n  nothing was committed"), code: CODE_FAILED },
        }
    }
}
