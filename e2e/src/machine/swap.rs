//! Compressed swap in memory (zram), until it is dropped.

use super::tool;
use crate::error::{Context, Result};
use std::path::Path;

const DEVICE: &str = "/dev/zram0";
const SETTINGS: &str = "/sys/block/zram0";
const BYTES: u64 = 512 << 20;

/// It is in use.
#[derive(Debug)]
pub struct Swap;

impl Swap {
    /// Has the machine swap.
    pub fn on() -> Result<Self> {
        let size = Path::new(SETTINGS).join("disksize");
        std::fs::write(&size, BYTES.to_string()).at("write", &size)?;
        tool("mkswap", &[DEVICE])?;
        tool("swapon", &["-p", "100", DEVICE])?;
        Ok(Self)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = tool("swapoff", &[DEVICE]);
        let _ = std::fs::write(Path::new(SETTINGS).join("reset"), "1");
    }
}
