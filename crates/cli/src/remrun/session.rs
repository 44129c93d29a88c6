//! One command at the daemon, from handing it over until its end: passes signals and the terminal's changes on.

use super::signals::Signals;
use super::terminal::Terminal;
use super::{say_lines, streams};
use base::door::{Reply, Request};
use base::{ExitStatus, TaskId, WindowSize};
use gleaner_client::door::pulse::{Life, Pulse};
use gleaner_client::door::{Door, DoorError, Folder, Received, system, timespec_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// How long a daemon that has not yet launched the command may take to answer a signal that would end it.
const INTERRUPT_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a daemon that has not yet launched the command may take to do so before Ctrl-Z stops this process alone.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// How often to look whether a terminal that another command has became free.
const TERMINAL_LOOK: Duration = Duration::from_millis(200);

/// How the talk with the daemon ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended.
    Done(ExitStatus),
    /// It is to run here, for this reason.
    RunHere(String),
    /// It did not take place.
    Failed {
        /// What, where, and what to do.
        message: String,
        /// Exit status.
        code: u8,
    },
    /// This signal came before the command was launched, and the daemon did not react.
    Interrupted(u8),
    /// The daemon is gone.
    Lost,
    /// The daemon is stopped, and was waited for long enough.
    Stopped,
}

/// The state of one command's run.
#[derive(Debug)]
pub struct Session<'a> {
    folder: &'a Folder,
    signals: &'a Signals,
    terminal: Terminal,
    /// The task, once launched, and whether it has a terminal.
    launched: Option<(TaskId, bool)>,
    /// What the daemon was last told by [`Request::Foreground`].
    told_foreground: bool,
    /// The size of the terminal that the daemon knows.
    told_window: Option<WindowSize>,
    /// A signal that would have ended us came before the launch: when to stop waiting, and which.
    interrupted: Option<(Instant, u8)>,
    /// A signal that would have ended us came since the launch.
    asked_to_end: Option<u8>,
    /// Whether the daemon lives on.
    pulse: Pulse,
    /// It was told that it does not.
    told_stopped: bool,
    /// SIGTSTP came before the launch, which is waited for until then: the daemon is to stop the task as well.
    stopping: Option<Instant>,
}

impl<'a> Session<'a> {
    /// A session whose locks are in `folder`.
    pub fn new(folder: &'a Folder, signals: &'a Signals) -> Self {
        let terminal = Terminal::new(streams::standard_streams()[0]);
        Self {
            folder,
            signals,
            terminal,
            launched: None,
            told_foreground: true,
            told_window: streams::window(),
            interrupted: None,
            asked_to_end: None,
            pulse: Pulse::new(),
            told_stopped: false,
            stopping: None,
        }
    }

    /// The task, if it was launched.
    pub fn launched(&self) -> Option<TaskId> {
        self.launched.map(|(task, _)| task)
    }

    /// Gives the terminal back; whether keys were the task's.
    pub fn close(&mut self) -> bool {
        let gave_keys = self.terminal.has_given_keys();
        self.terminal.release();
        gave_keys
    }

    /// Hands the command over and waits for its end, however long the command takes.
    pub fn run(&mut self, door: &mut Door, request: &Request) -> Result<End, DoorError> {
        self.told_foreground = true;
        passed(door.send(request, &streams::standard_streams()))?;
        if self.terminal.is_terminal() && !self.terminal.in_foreground() {
            self.tell_foreground(door, false)?;
        }
        loop {
            while let Some(signal) = self.signals.next() {
                self.on_signal(door, signal)?;
            }
            loop {
                match door.receive_now()? {
                    Received::Reply(reply) => {
                        if let Some(end) = self.on_reply(door, reply)? {
                            return Ok(end);
                        }
                    }
                    Received::Nothing => break,
                    Received::End => return Ok(End::Lost),
                }
            }
            if let Some((deadline, signal)) = self.interrupted
                && Instant::now() >= deadline
            {
                return Ok(End::Interrupted(signal));
            }
            if let Some(end) = self.look_at_daemon(door) {
                return Ok(end);
            }
            if self.stopping.is_some_and(|deadline| Instant::now() >= deadline) {
                self.stop_alone();
                self.continue_task(door)?;
            }
            self.claim_terminal(door)?;
            self.wait(door)?;
        }
    }

    /// Sees whether the daemon lives on: it may be stopped, and then neither answers nor closes the connection.
    fn look_at_daemon(&mut self, door: &Door) -> Option<End> {
        match self.pulse.look(door, self.launched.is_some()) {
            Life::Lives => return None,
            Life::GivenUp => return Some(End::Stopped),
            Life::Stopped => {}
        }
        if let Some(signal) = self.asked_to_end {
            self.note(&door.stopped().to_string());
            return Some(End::Interrupted(signal));
        }
        if !self.told_stopped && rustix::termios::isatty(streams::standard_streams()[2]) {
            self.told_stopped = true;
            self.note(&waits_for(&door.stopped()));
        }
        None
    }

    fn wait(&self, door: &Door) -> Result<(), DoorError> {
        let mut polled = [
            PollFd::from_borrowed_fd(door.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        let look = self.wants_terminal().then(|| Instant::now() + TERMINAL_LOOK);
        let interrupted = self.interrupted.map(|(deadline, _)| deadline);
        let timeout: Option<Timespec> = look
            .into_iter()
            .chain(interrupted)
            .chain(self.stopping)
            .chain([self.pulse.next()])
            .min()
            .map(timespec_until);
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system("waiting for the client daemon")(error)),
        }
    }

    fn on_signal(&mut self, door: &mut Door, signal: c_int) -> Result<(), DoorError> {
        match signal {
            libc::SIGWINCH => match streams::window().filter(|window| self.told_window != Some(*window)) {
                Some(window) => self.tell_window(door, window),
                // It was sent by hand: the terminal of the task would not tell it of a size that it has.
                None => tell(door, &Request::Signal(signal as u8)),
            },
            libc::SIGCONT => {
                self.stopping = None;
                // The shell may have set the terminal anew, and in the foreground or not.
                self.terminal.release();
                self.continue_task(door)
            }
            libc::SIGTSTP if self.launched.is_none() => {
                self.stopping.get_or_insert_with(|| Instant::now() + STOP_TIME_MAX);
                Ok(())
            }
            signal => {
                // The numbers are 1 to 64.
                let number = signal as u8;
                match (self.signals.would_end(signal), self.launched) {
                    (true, None) => {
                        self.interrupted.get_or_insert((Instant::now() + INTERRUPT_TIME_MAX, number));
                    }
                    (true, Some(_)) => self.asked_to_end = Some(number),
                    (false, _) => {}
                }
                tell(door, &Request::Signal(number))
            }
        }
    }

    fn on_reply(&mut self, door: &mut Door, reply: Reply) -> Result<Option<End>, DoorError> {
        match reply {
            Reply::Launched { task, terminal } => {
                self.launched = Some((task, terminal));
                self.interrupted = None;
                if self.stopping.take().is_some() {
                    tell(door, &Request::Signal(libc::SIGTSTP as u8))?;
                }
                self.claim_terminal(door)?;
            }
            Reply::Stopped(signal) => {
                let typed = self.terminal.gives_keys();
                self.terminal.release();
                if self.terminal.is_terminal() {
                    self.tell_foreground(door, false)?;
                }
                self.signals.stop_by(signal.into(), typed);
                self.continue_task(door)?;
            }
            Reply::Keys(given) => self.terminal.give_keys(given),
            Reply::Note(line) => self.note(&line),
            Reply::Done(status) => return Ok(Some(End::Done(status))),
            Reply::RunHere { why } => {
                if self.stopping.is_some() {
                    self.stop_alone();
                }
                return Ok(Some(End::RunHere(why)));
            }
            Reply::Failed { message, code } => return Ok(Some(End::Failed { message, code })),
            Reply::Answer(_) | Reply::Outcome(_) | Reply::Job(_) => {
                return Err(base::codec::Malformed("an answer that was not asked for").into());
            }
        }
        Ok(None)
    }

    /// Stops this process, which has no task yet, until it is continued.
    fn stop_alone(&mut self) {
        self.stopping = None;
        self.signals.stop_by(libc::SIGTSTP, false);
    }

    /// After we were stopped and continued: the terminal, its size, and the task, as far as they are ours.
    fn continue_task(&mut self, door: &mut Door) -> Result<(), DoorError> {
        if self.terminal.is_terminal() {
            let foreground = match self.launched {
                Some((_, true)) => self.terminal.acquire(self.folder.path()),
                _ => self.terminal.in_foreground(),
            };
            self.tell_foreground(door, foreground)?;
        }
        if self.launched.is_none() {
            return Ok(());
        }
        if let Some(window) = streams::window() {
            self.tell_window(door, window)?;
        }
        tell(door, &Request::Signal(libc::SIGCONT as u8))
    }

    /// Whether the task has a terminal, and ours is another's just now.
    fn wants_terminal(&self) -> bool {
        self.terminal.is_terminal() && matches!(self.launched, Some((_, true))) && !self.terminal.is_raw()
    }

    /// Takes the terminal if the task has one, and it is free.
    fn claim_terminal(&mut self, door: &Door) -> Result<(), DoorError> {
        if self.wants_terminal() {
            let acquired = self.terminal.acquire(self.folder.path());
            self.tell_foreground(door, acquired)?;
        }
        Ok(())
    }

    fn tell_window(&mut self, door: &Door, window: WindowSize) -> Result<(), DoorError> {
        self.told_window = Some(window);
        tell(door, &Request::Resize(window))
    }

    fn tell_foreground(&mut self, door: &Door, foreground: bool) -> Result<(), DoorError> {
        if self.told_foreground != foreground {
            self.told_foreground = foreground;
            tell(door, &Request::Foreground(foreground))?;
        }
        Ok(())
    }

    /// A line of the daemon's, on standard error; a raw terminal wants the carriage return as well.
    fn note(&self, line: &str) {
        say_lines(line, if self.terminal.is_raw() { "\r\n" } else { "\n" });
    }
}

/// What the caller is told while a daemon is waited for that is stopped.
pub fn waits_for(stopped: &DoorError) -> String {
    format!("waits: {stopped}, Ctrl-C ends this command")
}

/// Sends a message that needs no answer.
fn tell(door: &Door, request: &Request) -> Result<(), DoorError> {
    passed(door.send(request, &[]))
}

/// A daemon that closed the connection may have said why before: what it said is still to be read, and then its end.
fn passed(sent: Result<(), DoorError>) -> Result<(), DoorError> {
    match sent {
        Err(DoorError::System { .. }) => Ok(()),
        other => other,
    }
}
