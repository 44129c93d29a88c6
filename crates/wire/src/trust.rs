//! How far machines that lend are trusted, as hub, client and worker say it.

use serde::{Deserialize, Serialize};

/// The class of a machine that lends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Of the hub's owner. So are those that joined before there were classes.
    #[default]
    Own,
    /// Of somebody at the same site.
    Site,
    /// Of anybody.
    Volunteer,
    /// Nobody has said yet.
    Waiting,
}

impl Trust {
    const ALL: [Self; 4] = [Self::Own, Self::Site, Self::Volunteer, Self::Waiting];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Site => "site",
            Self::Volunteer => "volunteer",
            Self::Waiting => "waiting",
        }
    }

    /// The class of this name that can be given to a machine.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Own, Self::Site, Self::Volunteer].into_iter().find(|trust| trust.name() == name)
    }

    /// Its number in messages.
    pub fn number(self) -> u32 {
        1 + Self::ALL.iter().position(|trust| *trust == self).unwrap_or_default() as u32
    }

    /// The class of this number. 0: whoever says it knows no classes, and has none but the owner's. What is not known is the least trusted.
    pub fn from_number(number: u32) -> Self {
        match number.checked_sub(1) {
            None => Self::Own,
            Some(at) => Self::ALL.get(at as usize).copied().unwrap_or(Self::Waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_number_and_name() {
        for class in Trust::ALL {
            assert_eq!(Trust::from_number(class.number()), class);
        }
        assert_eq!(Trust::from_number(0), Trust::Own, "a hub that knows no classes");
        assert_eq!(Trust::from_number(77), Trust::Waiting, "what is not known is trusted least");
        assert_eq!(Trust::from_name("site"), Some(Trust::Site));
        assert!(Trust::Own < Trust::Site && Trust::Site < Trust::Volunteer);
    }
}
