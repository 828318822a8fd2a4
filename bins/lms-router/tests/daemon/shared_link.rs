//! A link with several hosts: the elected one answers its neighbours, and the source hears nothing of
//! what they have lost.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use crate::common::*;

const H3: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
const ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);

/// A switch between the router's interface `one` and the hosts; each host's end is `eth`.
struct SharedLink {
    src: Host,
    h1: Host,
    h3: Host,
    router: Host,
    _switch: Host,
}

fn plug(switch: &Host, port: &str, host: &Host, name: &str, address: Ipv4Addr) {
    switch.edit(|editor| {
        editor
            .add_veth(port, name, Some(host.namespace.as_fd()))
            .expect("veth");
    });
    let (bridge, end) = (switch.index("bridge"), switch.index(port));
    switch.edit(|editor| {
        editor.set_bridge(end, bridge).expect("port");
        editor.set_up(end, true).expect("up");
    });
    let index = host.index(name);
    host.edit(|editor| {
        editor.add_address(index, address, 24).expect("address");
        editor.set_up(index, true).expect("up");
    });
}

impl SharedLink {
    fn new() -> SharedLink {
        let (src, h1, h3) = (Host::new(), Host::new(), Host::new());
        let (router, switch) = (Host::new(), Host::new());
        wire([
            (&router, "up", Ipv4Addr::new(10, 0, 1, 1)),
            (&src, "eth", SRC),
        ]);
        switch.edit(|editor| editor.add_flooding_bridge("bridge").expect("bridge"));
        let bridge = switch.index("bridge");
        switch.edit(|editor| editor.set_up(bridge, true).expect("up"));
        for (port, host, name, address) in [
            ("p1", &router, "one", ONE),
            ("p2", &h1, "eth", H1),
            ("p3", &h3, "eth", H3),
        ] {
            plug(&switch, port, host, name, address);
            eventually("carrier", || host.interface(name).is_running.then_some(()));
        }
        SharedLink {
            src,
            h1,
            h3,
            router,
            _switch: switch,
        }
    }
}

#[test]
fn the_replier_answers_its_neighbours_and_the_source_hears_nothing() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = SharedLink::new();
            let daemon = start(&bed.router);
            let (src, h1, h3) = (
                Endpoint::new(&bed.src, None),
                Endpoint::new(&bed.h1, Some(SRC)),
                Endpoint::new(&bed.h3, Some(SRC)),
            );
            // A request of the replier itself, whose link address the router learns meanwhile, goes
            // up as on any link.
            eventually("the replier's own request reaches the source", || {
                h1.ask(request(), b"own");
                src.heard(NEVER)
            });
            while src.heard(NEVER).is_some() {}
            let before = daemon.counter("packets", "request_to_parent");
            let replier = Endpoint::new(&bed.h1, None);
            h3.ask(request(), b"nak");
            // Beside the request itself, which has no turning point, the replier hears the turned one.
            let point = eventually("a turned request", || {
                replier.heard(SOON).expect("requests").option.turning_point
            });
            assert_eq!(point.router, std::net::IpAddr::V4(ONE));
            assert_eq!(src.heard(NEVER), None, "the source hears of its neighbours");
            assert_eq!(daemon.counter("packets", "request_to_parent"), before);
            let inner = data_packet(SRC, GROUP, 9, b"repair");
            send_raw(&bed.h1, &dmcast(H1, ONE, point.iface, &inner));
            assert_eq!(h3.data(SOON).expect("the repair").1, b"repair");
            assert_eq!(src.data(NEVER), None);
        });
    });
}
