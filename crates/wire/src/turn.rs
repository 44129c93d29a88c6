//! What goes first where several streams of a connection have something to send.

/// The turn of a stream's bytes. Whatever is in a later turn waits, also when part of it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Somebody waits: launches, questions, what commands say. Streams share the link. Every stream begins so.
    First,
    /// Contents that were asked for; in the order of the questions.
    Contents,
    /// What belongs to a job's task of this rank; lower ranks go first.
    Ranked(u32),
    /// What nobody has asked for yet; in the order in which the streams were opened.
    Unasked,
    /// Input without end, on which no read with a time limit waits. Streams share the link.
    Last,
}

/// Priorities of one turn.
const SPAN: i32 = 1 << 28;

impl Turn {
    /// What a job's task of some rank says; a command's that is in no job, if there is none.
    pub fn ranked(rank: Option<u32>) -> Self {
        rank.map_or(Self::First, Self::Ranked)
    }

    /// The priority for QUIC, of the stream with this number: higher goes first, equals share.
    pub(crate) fn priority(self, number: u64) -> i32 {
        // A remainder of a span, and a rank below it, fit.
        let within = (number % SPAN as u64) as i32;
        match self {
            Self::First => 0,
            Self::Contents => -1 - within,
            Self::Ranked(rank) => -1 - SPAN - rank.min(SPAN as u32 - 1) as i32,
            Self::Unasked => -1 - 2 * SPAN - within,
            Self::Last => -1 - 3 * SPAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_one_another() {
        let in_order = [
            (Turn::First, 9),
            (Turn::Contents, 0),
            (Turn::Contents, u64::from(u32::MAX) / 16),
            (Turn::Ranked(0), 5),
            (Turn::Ranked(1), 4),
            (Turn::Ranked(u32::MAX), 3),
            (Turn::Unasked, 1),
            (Turn::Unasked, u64::from(u32::MAX) / 16),
            (Turn::Last, 2),
        ];
        let priorities = in_order.map(|(turn, number)| turn.priority(number));
        assert!(priorities.is_sorted_by(|one, next| one > next), "{priorities:?}");
    }
}
