//! `gleaner config`.

use crate::args::Json;
use crate::config::{Config, Flags, Surroundings};
use crate::error::Result;
use crate::render::{Table, print, print_json};

/// Shows the settings in effect, and where each comes from.
pub fn run(arguments: Json) -> Result {
    let around = Surroundings::of_process();
    let config = Config::load(&around, Flags::default())?;
    if arguments.json {
        return print_json(&config.json());
    }
    let mut table = Table::new(&["SETTING", "VALUE", "SOURCE"]);
    for (key, value, source) in config.table() {
        let value = match value {
            serde_json::Value::Null => "-".into(),
            serde_json::Value::String(text) => text,
            serde_json::Value::Array(items) => {
                items.iter().map(|item| item.as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        table.row(vec![key.into(), value, source]);
    }
    print(&format!("files in {}\n\n{}", config.dir.display(), table.text("nothing is set")))
}
