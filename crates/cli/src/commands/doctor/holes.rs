//! Known holes of kernels that matter to guests: who runs code on a machine should not become its root.
//!
//! The one table of them is [`HOLES`]. Versions are those of kernel.org: from the records of the CVE programme
//! (github.com/CVEProject/cvelistV5, those of the assigner "Linux") for holes since 2024, and from
//! github.com/nluedtke/linux_kernel_cves (`data/stream_fixes.json`) for older ones. Distributions mend holes without a new
//! version, so that a kernel *may* have one; for Debian's and Ubuntu's the version that they are made of is taken.

use super::{Finding, Verdict, WORKER, finding};

/// A version: 6.1.55.
type Version = (u32, u32, u32);

/// What stands between a guest and a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Nothing: it takes system calls that every program makes.
    Open,
    /// The worker's filter of system calls, or that guests have no rights over networks and mounts, and make no namespaces. Others who
    /// run code on the machine may reach it.
    Closed,
}

/// A hole.
struct Hole {
    cve: &'static str,
    /// Where in the kernel.
    part: &'static str,
    reach: Reach,
    /// The first version that has it.
    since: (u32, u32),
    /// The first one of Linus Torvalds' that has it no more.
    until: (u32, u32),
    /// The first ones of older series that have it no more.
    mended: &'static [Version],
}

const fn hole(
    cve: &'static str,
    part: &'static str,
    reach: Reach,
    since: (u32, u32),
    until: (u32, u32),
    mended: &'static [Version],
) -> Hole {
    Hole { cve, part, reach, since, until, mended }
}

use Reach::{Closed, Open};

/// Those that let a program become root or leave a container, by way of what containers have; older kernels than 5.11 are refused anyway.
const HOLES: &[Hole] = &[
    hole("CVE-2021-22555", "x_tables", Closed, (2, 6), (5, 12), &[(5, 10, 31), (5, 11, 15)]),
    hole("CVE-2021-33909", "seq_file and mounts", Closed, (3, 16), (5, 14), &[(5, 10, 52), (5, 12, 19), (5, 13, 4)]),
    hole("CVE-2022-0185", "mounts", Closed, (5, 1), (5, 17), &[(5, 10, 93), (5, 15, 16), (5, 16, 2)]),
    hole(
        "CVE-2022-0492",
        "control groups of version 1",
        Closed,
        (2, 6),
        (5, 17),
        &[(5, 10, 97), (5, 15, 20), (5, 16, 6)],
    ),
    hole("CVE-2022-0847", "pipes", Open, (5, 8), (5, 17), &[(5, 10, 102), (5, 15, 25), (5, 16, 11)]),
    hole("CVE-2022-0995", "watch queues", Open, (5, 8), (5, 17), &[(5, 10, 106), (5, 15, 29), (5, 16, 15)]),
    hole("CVE-2022-1011", "FUSE", Closed, (2, 6), (5, 17), &[(5, 10, 106), (5, 15, 29), (5, 16, 15)]),
    hole(
        "CVE-2022-2588",
        "traffic control",
        Closed,
        (2, 6),
        (6, 0),
        &[(5, 10, 137), (5, 15, 61), (5, 18, 18), (5, 19, 2)],
    ),
    hole("CVE-2023-0386", "overlayfs", Open, (5, 11), (6, 2), &[(5, 15, 91), (6, 1, 9)]),
    hole("CVE-2023-2598", "io_uring", Closed, (6, 3), (6, 4), &[(6, 3, 2)]),
    hole("CVE-2023-3269", "memory maps", Open, (6, 1), (6, 5), &[(6, 1, 37), (6, 3, 11), (6, 4, 1)]),
    hole(
        "CVE-2023-32233",
        "nf_tables",
        Closed,
        (3, 13),
        (6, 4),
        &[(5, 10, 180), (5, 15, 111), (6, 1, 28), (6, 2, 15), (6, 3, 2)],
    ),
    hole("CVE-2024-0582", "io_uring", Closed, (6, 4), (6, 7), &[(6, 6, 5)]),
    hole(
        "CVE-2024-1086",
        "nf_tables",
        Closed,
        (3, 15),
        (6, 8),
        &[(5, 10, 210), (5, 15, 149), (6, 1, 76), (6, 6, 15), (6, 7, 3)],
    ),
    hole(
        "CVE-2025-38236",
        "UNIX sockets",
        Open,
        (5, 15),
        (6, 16),
        &[(5, 15, 194), (6, 1, 143), (6, 6, 96), (6, 12, 36), (6, 15, 5)],
    ),
    hole(
        "CVE-2026-31431",
        "AF_ALG",
        Closed,
        (4, 14),
        (7, 0),
        &[(5, 10, 254), (5, 15, 204), (6, 1, 170), (6, 6, 137), (6, 12, 85), (6, 18, 22), (6, 19, 12)],
    ),
    hole(
        "CVE-2026-43284",
        "IPsec",
        Closed,
        (4, 11),
        (7, 1),
        &[(5, 10, 255), (5, 15, 206), (6, 1, 172), (6, 6, 138), (6, 12, 87), (6, 18, 28), (7, 0, 5)],
    ),
];

impl Hole {
    fn may_be_in(&self, version: Version) -> bool {
        let series = (version.0, version.1);
        let is_mended = self.mended.iter().any(|fixed| (fixed.0, fixed.1) == series && version.2 >= fixed.2);
        series >= self.since && series < self.until && !is_mended
    }
}

/// A kernel as it names itself.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`: Debian says there which version its kernel is made of.
    pub build: String,
    /// `/proc/version_signature`, where Ubuntu says so.
    pub signature: String,
}

impl Kernel {
    /// This machine's.
    pub fn look() -> Self {
        let names = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let signature = std::fs::read_to_string("/proc/version_signature").unwrap_or_default();
        Self { release: text(names.release()), build: text(names.version()), signature }
    }

    /// The version of kernel.org that it is made of, as far as it tells.
    fn version(&self) -> Version {
        let of_debian = self.build.split_once("Debian ").map(|(_, behind)| behind);
        let of_ubuntu = self.signature.split_whitespace().nth(2);
        numbers(of_debian.or(of_ubuntu).unwrap_or(&self.release))
    }
}

/// The first three numbers of a text.
fn numbers(text: &str) -> Version {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let mut parts = text[..end].split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// What the kernel may have. None for one that is too old for a worker anyway.
pub fn judge(kernel: &Kernel) -> Option<Finding> {
    let version = kernel.version();
    if (version.0, version.1) < (5, 11) {
        return None;
    }
    let named = |reach: Reach| {
        let holes = HOLES.iter().filter(|hole| hole.reach == reach && hole.may_be_in(version));
        holes.map(|hole| format!("{} ({})", hole.cve, hole.part)).collect::<Vec<_>>().join(", ")
    };
    let (open, closed) = (named(Open), named(Closed));
    let number = format!("{}.{}.{}", version.0, version.1, version.2);
    let verdict = if open.is_empty() { Verdict::Ok } else { Verdict::Weak };
    let open = match open.as_str() {
        "" => format!("{number} has none of the {} known here that guests reach", HOLES.len()),
        open => format!("by its version, {number} may have {open}: guests reach these"),
    };
    let closed = match closed.as_str() {
        "" => String::new(),
        closed => format!("; it may have {closed}: guests do not reach these, others on this machine may"),
    };
    let remedy = "update the kernel and start it; distributions mend holes without a new version: look the number up in their list";
    Some(finding("kernel holes", WORKER, verdict, open + &closed, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(release: &str, build: &str, signature: &str) -> (Verdict, String) {
        let kernel = Kernel { release: release.into(), build: build.into(), signature: signature.into() };
        let finding = judge(&kernel).expect("new enough");
        assert_eq!(finding.remedy.is_some(), finding.verdict != Verdict::Ok);
        (finding.verdict, finding.found)
    }

    #[test]
    fn a_kernel_with_known_holes_is_named() {
        let (verdict, said) = found("5.15.0", "#1 SMP", "");
        assert_eq!(verdict, Verdict::Weak);
        for cve in ["CVE-2022-0847 (pipes)", "CVE-2023-0386 (overlayfs)", "CVE-2024-1086 (nf_tables)", "may have"] {
            assert!(said.contains(cve), "{cve}: {said}");
        }
        assert!(!said.contains("CVE-2023-3269"), "it came later: {said}");
        assert_eq!(found("6.1.36", "", "").0, Verdict::Weak);
        assert!(found("6.2.0-rc1", "", "").1.contains("CVE-2023-3269"), "a series that nobody mends any more");
    }

    #[test]
    fn one_in_which_they_are_mended_is_fine() {
        for release in ["5.15.206", "6.1.172-rt", "6.18.44-fc-v595", "7.1.0", "8.0"] {
            let (verdict, said) = found(release, "", "");
            assert!(verdict == Verdict::Ok && !said.contains("CVE-"), "{release}: {said}");
        }
        assert!(judge(&Kernel { release: "5.10.300".into(), ..Kernel::default() }).is_none(), "too old anyway");
        // What guests do not reach is told, and is no reason to worry for the worker.
        let (verdict, said) = found("6.12.50", "", "");
        assert!(verdict == Verdict::Ok && said.contains("CVE-2026-31431 (AF_ALG)"), "{said}");
    }

    #[test]
    fn distributions_say_what_theirs_is_made_of() {
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.147-1 (2025-08-02)";
        assert!(found("6.1.0-38-amd64", debian, "").1.starts_with("6.1.147 has none"));
        assert_eq!(found("6.1.0-38-amd64", "#1 SMP", "").0, Verdict::Weak);
        let ubuntu = "Ubuntu 5.15.0-160.170-generic 5.15.195";
        assert_eq!(found("5.15.0-160-generic", "#170-Ubuntu SMP", ubuntu).0, Verdict::Ok);
    }

    #[test]
    fn the_table_is_sound() {
        for hole in HOLES {
            assert!(hole.since < hole.until, "{}", hole.cve);
            assert!(hole.mended.windows(2).all(|pair| pair[0] < pair[1]), "{}: in order", hole.cve);
            let of_series = |fixed: &Version| (fixed.0, fixed.1) >= hole.since && (fixed.0, fixed.1) < hole.until;
            assert!(hole.mended.iter().all(of_series), "{}", hole.cve);
            for fixed in hole.mended {
                assert!(!hole.may_be_in(*fixed) && hole.may_be_in((fixed.0, fixed.1, fixed.2 - 1)), "{}", hole.cve);
            }
            let number = hole.cve.strip_prefix("CVE-").and_then(|number| number.split_once('-'));
            assert!(
                number.is_some_and(|(year, number)| year.len() == 4 && number.parse::<u32>().is_ok()),
                "{}",
                hole.cve
            );
        }
        assert!(HOLES.windows(2).all(|pair| pair[0].cve != pair[1].cve));
    }
}
