//! Pipes and files as standard input, looked into by one task and by several.

use super::source::PIPE_BYTES;
use super::*;
use rustix::io::{ioctl_fionread, write};
use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, pipe, splice};

struct Pipe {
    peeked: Arc<Peeked>,
    part: Part,
    taken: Arc<Mutex<Taken>>,
    reader: Arc<OwnedFd>,
    writer: OwnedFd,
    stop: Stop,
}

fn looked() -> Pipe {
    let (reader, writer) = pipe().expect("a pipe");
    let (reader, taken) = (Arc::new(reader), Arc::default());
    let part = Part::new(reader.clone(), Arc::clone(&taken)).expect("a pipe");
    let (peeked, stop) = (part.peeked().clone(), Stop::new().expect("an event"));
    Pipe { peeked, part, taken, reader, writer, stop }
}

impl Pipe {
    fn look(&self, attempt: u32) -> Vec<u8> {
        match self.peeked.look(attempt, &[&self.stop], 1 << 20) {
            Looked::Read(Done::Ok(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn left(&self) -> u64 {
        ioctl_fionread(&self.reader).expect("a pipe")
    }
}

fn read(bytes: &[u8]) -> Looked {
    Looked::Read(Done::Ok(bytes.to_vec()))
}

#[test]
fn what_is_not_taken_stays_and_every_attempt_finds_it() {
    let looked = looked();
    write(&looked.writer, b"one\ntwo\n").unwrap();
    let first = looked.peeked.begin();
    assert_eq!(looked.look(first), b"one\ntwo\n");
    write(&looked.writer, b"three\n").unwrap();
    assert_eq!(looked.look(first), b"three\n", "what is there already is not found again");
    let second = looked.peeked.begin();
    assert_eq!(looked.peeked.look(first, &[], 100), Looked::Read(Done::Stopped), "the first is over");
    assert_eq!(looked.look(second), b"one\ntwo\nthree\n");
    looked.peeked.note_taken(4);
    assert_eq!((looked.left(), lock(&looked.taken).bytes), (14, 0), "there is room enough");
    looked.peeked.leave_rest(4);
    assert_eq!((looked.left(), &lock(&looked.taken).kept[..]), (10, &b"one\n"[..]));
    assert!(!looked.peeked.was_read_by_others());
}

#[test]
fn a_look_waits_for_more_and_for_the_end() {
    let looked = looked();
    let attempt = looked.peeked.begin();
    write(&looked.writer, b"x").unwrap();
    looked.look(attempt);
    let (peeked, stop) = (looked.peeked.clone(), looked.stop.clone());
    let (found, finds) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        (0..2).for_each(|_| found.send(peeked.look(attempt, &[&stop], 100)).expect("it is waited for"));
    });
    let limit = Duration::from_secs(10);
    assert!(finds.recv_timeout(EDGE_WAIT * 2).is_err(), "there is nothing new");
    write(&looked.writer, b"y").unwrap();
    assert_eq!(finds.recv_timeout(limit), Ok(read(b"y")));
    let Pipe { writer, .. } = looked;
    drop(writer);
    assert_eq!(finds.recv_timeout(limit), Ok(read(b"")));
    waiting.join().expect("no panic");
}

#[test]
fn much_goes_through_a_pipe_that_is_made_large() {
    let looked = looked();
    let attempt = looked.peeked.begin();
    let much: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    let (writer, wanted) = (looked.writer.try_clone().expect("a copy"), much.clone());
    let writing = std::thread::spawn(move || {
        let mut rest = &much[..];
        while !rest.is_empty() {
            rest = &rest[write(&writer, rest).expect("it goes on")..];
        }
    });
    let mut found = Vec::new();
    while found.len() < wanted.len() {
        found.extend(looked.look(attempt));
        looked.peeked.note_taken(found.len() as u64);
    }
    writing.join().expect("no panic");
    assert!(found == wanted && fcntl_getpipe_size(&looked.reader) == Ok(PIPE_BYTES));
    assert!(!lock(&looked.taken).is_whole(), "more than is kept");
    looked.peeked.leave_rest(found.len() as u64);
    assert_eq!((looked.left(), looked.peeked.was_read_by_others()), (0, false));
}

/// A page of the pipe holds one byte here: it is full long before its size.
#[test]
fn a_pipe_that_is_full_of_little_is_emptied_once_that_is_taken() {
    let looked = looked();
    let attempt = looked.peeked.begin();
    let (source, into) = pipe().expect("a pipe");
    let writer = looked.writer.try_clone().expect("a copy");
    let writing = std::thread::spawn(move || {
        for at in 0..40u8 {
            write(&into, &[at]).expect("room");
            splice(&source, None, &writer, None, 1, SpliceFlags::empty()).expect("room in the end");
        }
    });
    let mut found = Vec::new();
    while found.len() < 40 {
        found.extend(looked.look(attempt));
        looked.peeked.note_taken(found.len() as u64);
    }
    writing.join().expect("no panic");
    assert!(found.iter().copied().eq(0..40));
}

#[test]
fn of_two_that_share_a_pipe_each_has_what_the_other_has_not_read() {
    let looked = looked();
    let attempt = looked.peeked.begin();
    write(&looked.writer, b"one two three").unwrap();
    assert_eq!(looked.look(attempt), b"one two three");
    let taken = Arc::<Mutex<Taken>>::default();
    let second = Part::new(looked.reader.clone(), taken.clone()).expect("a pipe");
    let (other, stop) = (second.peeked().clone(), looked.stop.clone());
    let other_attempt = other.begin();
    let waiting = std::thread::spawn(move || other.look(other_attempt, &[&stop], 100));
    looked.peeked.note_taken(2);
    assert_eq!(looked.peeked.look(attempt, &[&looked.stop], 100), Looked::GiveBack, "the other one waits");
    assert!(!waiting.is_finished(), "it is not known yet what was read");
    looked.peeked.gave_back(4);
    assert_eq!(waiting.join().expect("no panic"), read(b"two three"));
    assert_eq!((looked.left(), &lock(&looked.taken).kept[..]), (9, &b"one "[..]));
    assert!(!looked.peeked.was_read_by_others() && !second.peeked().was_read_by_others());
    second.peeked().leave_rest(4);
    drop(second);
    assert_eq!(looked.look(attempt), b"three", "and what that one has left");
    assert_eq!((looked.left(), &lock(&taken).kept[..]), (5, &b"two "[..]));
    looked.peeked.leave_rest(9);
    let Pipe { writer, reader, .. } = looked;
    drop(writer);
    assert_eq!(ioctl_fionread(&reader).expect("a pipe"), 0);
}

#[test]
fn who_has_read_all_to_the_end_keeps_no_others() {
    let looked = looked();
    let attempt = looked.peeked.begin();
    write(&looked.writer, b"all").unwrap();
    assert_eq!(looked.look(attempt), b"all");
    let Pipe { part: _first, peeked, reader, writer, stop, .. } = looked;
    drop(writer);
    assert_eq!(peeked.look(attempt, &[], 100), read(b""));
    let second = Part::new(reader.clone(), Arc::default()).expect("a pipe");
    let other = second.peeked().clone();
    let other_attempt = other.begin();
    let waiting = std::thread::spawn(move || other.look(other_attempt, &[&stop], 100));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async { peeked.is_wanted_by_others().await });
    assert!(!peeked.makes_way() && !waiting.is_finished(), "it has not read all");
    peeked.note_taken(3);
    assert!(peeked.makes_way());
    assert_eq!(waiting.join().expect("no panic"), read(b""));
    assert_eq!(ioctl_fionread(&reader).expect("a pipe"), 0);
}

#[test]
fn the_place_in_a_file_is_where_the_task_has_left_it() {
    use std::io::{Read as _, Seek as _, Write as _};
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"one\ntwo\nthree\n").expect("written");
    file.seek(std::io::SeekFrom::Start(4)).expect("a place");
    let part = Part::new(Arc::new(file.try_clone().expect("a copy").into()), Arc::default()).expect("a file");
    let peeked = part.peeked();
    for _ in 0..2 {
        let attempt = peeked.begin();
        assert_eq!(peeked.look(attempt, &[], 5), read(b"two\nt"));
        assert_eq!(peeked.look(attempt, &[], 100), read(b"hree\n"));
        assert_eq!(peeked.look(attempt, &[], 100), read(b""), "its end");
    }
    peeked.note_taken(4);
    assert!(!peeked.was_read_by_others());
    peeked.leave_rest(4);
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "three\n");
    // Somebody else has read it meanwhile, who shares its place.
    let attempt = peeked.begin();
    file.seek(std::io::SeekFrom::Start(4)).expect("a place");
    assert_eq!(peeked.look(attempt, &[], 4), read(b"two\n"), "nothing was sent before");
    file.seek(std::io::SeekFrom::Start(0)).expect("a place");
    assert_eq!(peeked.look(attempt, &[], 4), read(b"one\n"), "read, as of any other descriptor");
    assert!(peeked.was_read_by_others());
}

/// As what a program has as its input that `ssh`, `socat` or a service manager has started.
#[test]
fn what_is_not_taken_of_a_socket_stays() {
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
    let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).expect("sockets");
    let (reader, writer) = pair();
    let (reader, taken) = (Arc::new(reader), Arc::<Mutex<Taken>>::default());
    let part = Part::new(reader.clone(), taken.clone()).expect("a stream");
    let peeked = part.peeked();
    let attempt = peeked.begin();
    for word in ["one ", "two ", "three"] {
        write(&writer, word.as_bytes()).unwrap();
    }
    assert_eq!(peeked.look(attempt, &[], 5), read(b"one t"));
    assert_eq!(peeked.look(attempt, &[], 100), read(b"wo three"));
    shutdown(&writer, Shutdown::Write).unwrap();
    assert_eq!(peeked.look(attempt, &[], 100), read(b""), "its end");
    assert!(!peeked.was_read_by_others());
    peeked.leave_rest(4);
    let mut rest = [0; 20];
    assert_eq!(rustix::io::read(&reader, &mut rest), Ok(9));
    assert_eq!((&rest[..9], &lock(&taken).kept[..]), (&b"two three"[..], &b"one "[..]));
    let (packets, _other) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::empty(), None).unwrap();
    assert!(Part::new(Arc::new(packets), Arc::default()).is_none(), "each is one read");
}

#[test]
fn it_is_noticed_that_others_have_read_what_was_sent() {
    let looked = looked();
    let attempt = looked.peeked.begin();
    write(&looked.writer, b"one two").unwrap();
    looked.look(attempt);
    rustix::io::read(&looked.reader, &mut [0; 3]).unwrap();
    assert!(looked.peeked.was_read_by_others());
    write(&looked.writer, b"more than there was").unwrap();
    assert!(looked.peeked.was_read_by_others());
}
