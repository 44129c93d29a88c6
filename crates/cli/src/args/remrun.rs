//! `remrun` as its manual page and its completions need it: from the table that its help is made of.

use crate::remrun::definition::{ABOUT, FLAGS, Flag, STATUS};
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use std::fmt::Write;

/// Its definition.
pub fn command() -> Command {
    let command = Command::new("remrun")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .override_usage("remrun [OPTIONS] COMMAND [ARGUMENT...]")
        .after_help(STATUS)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(FLAGS.iter().map(argument));
    let rest = Arg::new("command").value_name("COMMAND").num_args(1..).required(true).trailing_var_arg(true);
    command.arg(rest.value_hint(ValueHint::CommandWithArguments).help("the command and its arguments"))
}

fn argument(flag: &Flag) -> Arg {
    let argument = Arg::new(flag.long).long(flag.long).help(flag.help);
    let argument = match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    match flag.value {
        Some(value) => argument.value_name(value),
        None => argument.action(ArgAction::SetTrue),
    }
}

/// Completions of `remrun` for this shell: its options, and behind them a command's name and what that command takes, as
/// shells complete for `env` and `nice`. `None` for shells that have no such thing.
pub fn completions(shell: Shell) -> Option<String> {
    match shell {
        Shell::Bash => Some(bash()),
        Shell::Zsh => Some(zsh()),
        Shell::Fish => Some(fish()),
        _ => None,
    }
}

/// All names of the flags for which this holds.
fn names(of: impl Fn(&Flag) -> bool, between: &str) -> String {
    let names = FLAGS
        .iter()
        .filter(|flag| of(flag))
        .flat_map(|flag| flag.short.map(|short| format!("-{short}")).into_iter().chain([format!("--{}", flag.long)]));
    names.collect::<Vec<_>>().join(between)
}

fn bash() -> String {
    let all = names(|_| true, " ");
    let paths = names(|flag| flag.is_path, "|");
    let values = names(|flag| flag.value.is_some() && !flag.is_path, "|");
    format!(
        r#"_remrun() {{
    local at=1 word=${{COMP_WORDS[COMP_CWORD]}}
    COMPREPLY=()
    while [ "$at" -lt "$COMP_CWORD" ]; do
        case ${{COMP_WORDS[at]}} in
            --) at=$((at + 1)); break ;;
            {paths}|{values})
                # Bash takes `--cpus=2` for three words.
                [ "${{COMP_WORDS[at + 1]}}" = = ] && at=$((at + 1))
                at=$((at + 2)) ;;
            -?*) at=$((at + 1)) ;;
            *) break ;;
        esac
    done
    if [ "$at" -gt "$COMP_CWORD" ]; then
        case ${{COMP_WORDS[COMP_CWORD - 1]}} in
            {paths}|=) compopt -o filenames; COMPREPLY=($(compgen -f -- "$word")) ;;
        esac
    elif [ "$at" -eq "$COMP_CWORD" ] && [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "{all}" -- "$word"))
    elif declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$at"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$at"
    elif [ "$at" -eq "$COMP_CWORD" ]; then
        compopt -o filenames
        COMPREPLY=($(compgen -c -- "$word"; compgen -f -- "$word"))
    else
        compopt -o filenames
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -F _remrun remrun
"#
    )
}

fn zsh() -> String {
    let mut text = String::from("#compdef remrun\n_arguments -S -s \\\n");
    for flag in FLAGS {
        let quoted = flag.help.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
        let names = match flag.short {
            Some(short) => format!("{{-{short}{},--{}{}}}", plus(flag), flag.long, equals(flag)),
            None => format!("--{}{}", flag.long, equals(flag)),
        };
        let action = match (flag.value, flag.is_path) {
            (Some(value), true) => format!(":{value}:_files"),
            (Some(value), false) => format!(":{value}: "),
            (None, _) => String::new(),
        };
        let _ = writeln!(text, "  {}'[{quoted}]{action}' \\", names_quoted(&names));
    }
    text + "  '(-)1:command:{ _command_names -e || _files }' \\\n  '*::arguments:_normal'\n"
}

/// Braces are the shell's, what has none is quoted.
fn names_quoted(names: &str) -> String {
    if names.starts_with('{') { names.to_owned() } else { format!("'{names}'") }
}

fn plus(flag: &Flag) -> &'static str {
    if flag.value.is_some() { "+" } else { "" }
}

fn equals(flag: &Flag) -> &'static str {
    if flag.value.is_some() { "=" } else { "" }
}

fn fish() -> String {
    let mut text = String::new();
    for flag in FLAGS {
        let short = flag.short.map_or(String::new(), |short| format!(" -s {short}"));
        let value = match (flag.value, flag.is_path) {
            (Some(_), true) => " -r -F",
            (Some(_), false) => " -x",
            (None, _) => "",
        };
        let help = flag.help.replace('\'', "\\'");
        // Behind a command all options are the command's.
        let first = "not __fish_seen_argument_of_remrun";
        let _ = writeln!(text, "complete -c remrun -n '{first}'{short} -l {}{value} -d '{help}'", flag.long);
    }
    let valued = names(|flag| flag.value.is_some(), " ");
    format!(
        "\
# Whether the command has begun.
function __fish_seen_argument_of_remrun
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                return 0
            case {valued}
                set -e words[1]
            case '-?*'
            case '*'
                return 0
        end
        set -e words[1]
    end
    return 1
end
complete -c remrun -x -a '(__fish_complete_subcommand -- {valued})'
{text}"
    )
}
