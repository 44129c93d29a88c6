//! Whom a task reaches, and whom not.

use super::*;

#[test]
fn the_first_resolver_is_asked() {
    let text = "# made by hand\nsearch example.org\nnameserver nonsense\n  nameserver 192.168.1.1\nnameserver ::1\n";
    assert_eq!(first_resolver(text), Some("192.168.1.1".parse().expect("an address")));
    assert_eq!(first_resolver("nameservers 1.1.1.1\nnameserver\n"), None);
}

#[test]
fn nothing_near_is_a_destination() {
    let way = |from: &str, to: &str| Way { from: from.parse().expect("one"), to: to.parse().expect("one") };
    let own = "10.0.2.15:4000";
    assert_eq!(destination(way(own, "1.2.3.4:80")), Some("1.2.3.4:80".parse().expect("one")));
    for to in ["10.0.2.2:80", "10.0.2.3:53", "127.0.0.1:80", "192.168.0.1:53", "169.254.169.254:80"] {
        assert_eq!(destination(way(own, to)), None, "{to}");
    }
    assert_eq!(destination(way("1.1.1.1:5", "1.2.3.4:80")), None, "not its own address");
}
