//! A hostile hub between an honest client and an honest worker: it passes on what they say to each other, but for files of some names, of
//! which it tells the worker something else.

use super::failed;
use super::hub::{answers, finish, let_in};
use crate::error::Result;
use base::Digest;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wire::message::{
    BindReply, BindRequest, Bound, Launch, ObjectReply, Open, OpenKind, OutputKind, PiecesRequest, Placed, TaskInput,
    TaskOutput, digest_bytes,
};
use wire::{Connection, Key, Listener, Receiver, Role, Sender, Token, lock};

/// What the worker is told that a file holds.
const FORGED: &[u8] = b"forged\n";
const FILE: u32 = 3;
const BLOCK: u32 = 1;
const EACCES: i32 = 13;
const EIO: i32 = 5;

/// What it knows of both sides.
#[derive(Default)]
struct Between {
    worker: Mutex<Option<Connection>>,
    client: Mutex<Option<Connection>>,
    /// The contents that are not given.
    unsent: Mutex<Vec<Vec<u8>>>,
    /// What was told once of paths of whose changes nothing is told.
    old: Mutex<HashMap<Vec<u8>, Bound>>,
}

/// Serves until it is killed.
pub(super) async fn run() -> Result<()> {
    let key = Key::generate();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), &key).map_err(failed)?;
    let addresses = vec![listener.address().map_err(failed)?];
    for (role, name) in [(Role::Client, "token"), (Role::Worker, "token of a worker")] {
        let token = Token { hub: key.node(), addresses: addresses.clone(), secret: rand::random(), role };
        println!("{name} {token}");
    }
    let between = Arc::<Between>::default();
    let_in(listener, key.node(), move |connection, hello| {
        let between = between.clone();
        async move {
            let is_worker = hello.role == u32::from(Role::Worker.number());
            match is_worker {
                // `gleaner join`, before the worker itself.
                true if hello.asks => {}
                true => {
                    *lock(&between.worker) = Some(connection.clone());
                    println!("a worker is here");
                    between.answer_worker(connection).await;
                }
                false => {
                    *lock(&between.client) = Some(connection.clone());
                    between.serve_client(connection, hello.instance).await;
                }
            }
        }
    })
    .await;
    Ok(())
}

impl Between {
    async fn serve_client(self: &Arc<Self>, connection: Connection, instance: u64) {
        let client = [&connection.peer().0.0[..], &instance.to_be_bytes()].concat();
        while let Ok((mut sender, mut receiver)) = connection.accept_control().await {
            let (between, client) = (self.clone(), Bytes::from(client.clone()));
            tokio::spawn(async move {
                while let Ok(Some(Open { kind })) = receiver.next::<Open>().await {
                    match kind {
                        Some(OpenKind::Launch(launch)) => {
                            let launch = Launch { client, tenant_number: 1, ..*launch };
                            return between.pass(launch, sender, receiver).await;
                        }
                        Some(kind) if answers(&kind, &mut sender).await => return finish(sender).await,
                        _ => {}
                    }
                }
            });
        }
    }

    /// A launch to the worker, what the client says to it, and what comes of it.
    async fn pass(&self, mut launch: Launch, mut to_client: Sender, mut from_client: Receiver) {
        let Some(worker) = lock(&self.worker).clone() else { return };
        // The worker asks for all contents.
        (launch.objects, launch.coming, launch.copied) = Default::default();
        if let Some(view) = &mut launch.view {
            view.set = std::mem::take(&mut view.set).into_iter().filter_map(|bound| self.told(bound)).collect();
        }
        let node = Bytes::copy_from_slice(&worker.peer().0.0);
        let placed = Placed { worker: node, name: "worker".into(), why: "there is one".into(), ..Placed::default() };
        let _ = to_client.send(&TaskOutput::from(OutputKind::Placed(placed))).await;
        let Ok((mut to_worker, mut from_worker)) = worker.open(OpenKind::Launch(Box::new(launch))).await else {
            return;
        };
        let there = async {
            while let Ok(Some(input)) = from_client.next::<TaskInput>().await {
                let _ = to_worker.send(&input).await;
            }
        };
        let back = async {
            while let Ok(Some(output)) = from_worker.next::<TaskOutput>().await {
                let _ = to_client.send(&output).await;
            }
            finish(to_client).await;
        };
        tokio::join!(there, back);
    }

    /// What the worker is told where a client says this.
    fn told(&self, bound: Bound) -> Option<Bound> {
        match bound.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default() {
            b"hidden" => Some(Bound { path: bound.path, seq: bound.seq, ..Bound::default() }),
            b"changed" => {
                let attr = bound.attr.map(|attr| wire::message::Attr { size: FORGED.len() as u64, ..attr });
                let digest = Digest::of(FORGED).0.to_vec();
                Some(Bound { kind: FILE, content: BLOCK, attr, digest, ..bound })
            }
            b"refused" => None,
            b"unsent" => {
                lock(&self.unsent).push(bound.digest.clone());
                Some(bound)
            }
            b"old" => {
                let mut old = lock(&self.old);
                Some(old.entry(bound.path.clone()).or_insert(bound).clone())
            }
            _ => Some(bound),
        }
    }

    async fn answer_worker(self: &Arc<Self>, connection: Connection) {
        while let Ok((sender, mut receiver)) = connection.accept_control().await {
            let between = self.clone();
            tokio::spawn(async move {
                if let Ok(Some(Open { kind: Some(kind) })) = receiver.next::<Open>().await {
                    between.answer(kind, sender).await;
                }
            });
        }
    }

    async fn answer(&self, question: OpenKind, mut sender: Sender) {
        let Some(client) = lock(&self.client).clone() else { return };
        match question {
            OpenKind::Bind(request) => {
                let reply = self.bind(&client, request).await;
                let _ = sender.send(&reply).await;
            }
            OpenKind::Objects(request) => {
                for name in request.digests.clone() {
                    let one = wire::message::ObjectsRequest { digests: vec![name.clone()], ..request.clone() };
                    let reply = self.object(&client, name, one).await;
                    let _ = sender.answer_object(reply).await;
                }
            }
            OpenKind::Pieces(request) => {
                let reply = piece(&client, request).await;
                let _ = sender.answer_object(reply).await;
            }
            _ => return,
        }
        finish(sender).await;
    }

    async fn bind(&self, client: &Connection, request: BindRequest) -> BindReply {
        if request.path.ends_with(b"/refused") {
            return BindReply { error: "it is kept back".into(), errno: EACCES, ..BindReply::default() };
        }
        let reply = client.request::<BindReply>(OpenKind::Bind(request)).await.unwrap_or_default();
        let bounds = reply.bounds.into_iter().filter_map(|bound| self.told(bound)).collect();
        BindReply { bounds, objects: Vec::new(), ..reply }
    }

    async fn object(&self, client: &Connection, name: Bytes, request: wire::message::ObjectsRequest) -> ObjectReply {
        if name[..] == Digest::of(FORGED).0 {
            return ObjectReply { digest: name, bytes: Bytes::from_static(FORGED), ..ObjectReply::default() };
        }
        if lock(&self.unsent).iter().any(|unsent| *unsent == name) {
            return ObjectReply {
                digest: name,
                error: "it cannot be read".into(),
                errno: EIO,
                ..ObjectReply::default()
            };
        }
        client.request::<ObjectReply>(OpenKind::Objects(request)).await.unwrap_or_default()
    }
}

/// A piece of a lazily bound file, with another first byte.
async fn piece(client: &Connection, request: PiecesRequest) -> ObjectReply {
    let reply = client.request::<ObjectReply>(OpenKind::Pieces(request)).await.unwrap_or_default();
    let mut bytes = reply.bytes.to_vec();
    // Of what is no program: otherwise nothing would run.
    if bytes.starts_with(b"piece") {
        bytes[0] = b'P';
    }
    ObjectReply { digest: digest_bytes(&Digest::of(&bytes)), bytes: bytes.into(), ..reply }
}
