//! Attributes of files whose values stayed at the client. A mirror shows a mark in the place of each, which overlayfs copies with the
//! file when a task opens it; no program must be shown the mark.

use super::notices::{Decision, located, read_text};
use super::sys;

/// An attribute that is asked for or removed. This process may read what the task's user may: whom the kernel refuses the attribute
/// is refused, as at the client.
pub fn on_value(process: u32, number: libc::c_long, args: &[u64; 6]) -> Decision {
    let Some(name) = read_text(process, args[1]).filter(|name| name.starts_with(b"user.")) else {
        return Decision::Go;
    };
    let place = match number {
        libc::SYS_fgetxattr | libc::SYS_fremovexattr => Some(format!("/proc/{process}/fd/{}", args[0] as i32).into()),
        _ => read_text(process, args[0]).map(|path| located(process, libc::AT_FDCWD, &path)),
    };
    let follows = ![libc::SYS_lgetxattr, libc::SYS_lremovexattr].contains(&number);
    let mut value = [0; 64];
    let got = place.and_then(|place| sys::attribute(&place, follows, &name, &mut value).ok());
    match got.is_some_and(|len| base::attr::is_kept_back(&value[..len])) {
        true => Decision::CallOff(format!(
            "it asks for the attribute {} of a file that stays on this machine",
            base::path::printable(&name)
        )),
        false => Decision::Go,
    }
}
