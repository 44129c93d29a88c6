//! The tasks that drive an endpoint and its connections. A panic in one ends the process, and the endpoint's task takes
//! its packets in time also where there are thousands of connections.
//!
//! A panic under the lock of a connection or of the endpoint leaves its state half changed and the lock poisoned. Nothing
//! drives it any more, nobody is told, and each later use panics as well: the process seems to live and serves nobody.
//! All that use this crate survive their end at any time, and are started again.
//!
//! Quinn's endpoint takes packets for 50 us at a time, and then stands behind all tasks that are ready. With thousands of connections these
//! are thousands, each with little to do; the socket's buffer runs over meanwhile, and all send again what was lost. Measured
//! with 10,000 hosts: two of five packets. So as long as there are packets it takes its turn several times over.

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Turns that are taken at once at most: some 2 ms.
const TURNS_MAX: usize = 40;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tokio, with an eager endpoint: what is spawned first.
#[derive(Debug, Default)]
pub(crate) struct EagerRuntime {
    has_endpoint: AtomicBool,
}

impl Runtime for EagerRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Task) {
        match self.has_endpoint.swap(true, Ordering::Relaxed) {
            true => TokioRuntime.spawn(Box::pin(Driver(future))),
            false => TokioRuntime.spawn(Box::pin(Driver(Box::pin(Eager::new(future))))),
        }
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

/// A task that must not panic.
struct Driver(Task);

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let unwinding = Unwinding;
        let polled = self.0.as_mut().poll(cx);
        std::mem::forget(unwinding);
        polled
    }
}

/// Ends the process when a panic drops it. The panic's own message has been printed by then.
struct Unwinding;

impl Drop for Unwinding {
    fn drop(&mut self) {
        tracing::error!("what drives the connections has panicked: this process ends");
        std::process::abort();
    }
}

/// A task that is polled again at once if it has woken itself.
struct Eager {
    task: Task,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Who wants the task to go on.
#[derive(Default)]
struct Bell {
    has_rung: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // While it is polled there is nobody to be told: it looks by itself.
        if !self.has_rung.swap(true, Ordering::AcqRel) {
            crate::lock(&self.outer).take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Eager {
    fn new(task: Task) -> Self {
        let bell = Arc::<Bell>::default();
        Self { task, waker: bell.clone().into(), bell }
    }
}

impl Future for Eager {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..TURNS_MAX {
            this.bell.has_rung.store(false, Ordering::Release);
            if this.task.as_mut().poll(&mut Context::from_waker(&this.waker)).is_ready() {
                return Poll::Ready(());
            }
            if !this.bell.has_rung.load(Ordering::Acquire) {
                *crate::lock(&this.bell.outer) = Some(cx.waker().clone());
                // It may have rung between the look and that.
                if !this.bell.has_rung.load(Ordering::Acquire) {
                    return Poll::Pending;
                }
                crate::lock(&this.bell.outer).take();
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// Wakes itself so many times, then waits for another thread each time.
    struct Busy {
        polled: Arc<AtomicUsize>,
        own: usize,
        others: usize,
    }

    impl Future for Busy {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.polled.fetch_add(1, Ordering::Relaxed);
            if self.own > 0 {
                self.own -= 1;
                cx.waker().wake_by_ref();
            } else if self.others > 0 {
                self.others -= 1;
                let waker = cx.waker().clone();
                std::thread::spawn(move || waker.wake());
            } else {
                return Poll::Ready(());
            }
            Poll::Pending
        }
    }

    /// By this the test runs itself again, to end so.
    const ENDS: &str = "GLEANER_TEST_ENDS";

    #[test]
    fn a_panic_in_what_drives_a_connection_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;
        if std::env::var_os(ENDS).is_some() {
            // No core file.
            let _ = rustix::process::setrlimit(
                rustix::process::Resource::Core,
                rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
            );
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            return runtime.block_on(async {
                let drivers = EagerRuntime::default();
                drivers.spawn(Box::pin(std::future::pending()));
                drivers.spawn(Box::pin(async { panic!("as when time runs backwards") }));
                tokio::time::sleep(Duration::from_secs(20)).await;
            });
        }
        let own = std::env::current_exe().expect("this program");
        let name = "eager::tests::a_panic_in_what_drives_a_connection_ends_the_process";
        let again = std::process::Command::new(own).args([name, "--exact", "--nocapture"]).env(ENDS, "1").output();
        let again = again.expect("it runs");
        let said = String::from_utf8_lossy(&again.stderr);
        assert_eq!(again.status.signal(), Some(6), "{said}");
        assert!(said.contains("as when time runs backwards"), "{said}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_wake_is_lost() {
        for round in 0..200 {
            let polled = Arc::new(AtomicUsize::new(0));
            let busy = Busy { polled: polled.clone(), own: round, others: 20 };
            let done = tokio::time::timeout(Duration::from_secs(10), Eager::new(Box::pin(busy)));
            done.await.expect("it goes on");
            assert_eq!(polled.load(Ordering::Relaxed), round + 21);
        }
    }
}
