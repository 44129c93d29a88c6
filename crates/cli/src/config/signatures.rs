//! Whether launches and results without a signature count.

/// Whose signatures are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Of those who have signed before: whoever has not may be of the version before.
    Known,
    /// Of everybody.
    Required,
}

impl Signatures {
    /// What to say instead of a word that is none.
    pub const WANT: &str = "known or required";

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Required => "required",
        }
    }

    /// Whether what nobody has signed is refused, whoever it is of.
    pub fn are_required(self) -> bool {
        self == Self::Required
    }
}

impl std::str::FromStr for Signatures {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Known, Self::Required].into_iter().find(|signatures| signatures.name() == text).ok_or(())
    }
}
