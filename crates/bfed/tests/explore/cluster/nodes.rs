//! Packets, timers and changes.

use bfed::*;
use netsim::explore::{Fingerprint, Nodes, Outbox, START};

use super::{
    CLIENT, CONTROLS, COUNT, Change, Cluster, Control, Cut, DATA, ETCD, LINK, OWNER, Packet,
    VIEWER, control, from_etcd, gone, session,
};
use crate::gateway::{RANDOM, SKIPPED};

impl Nodes for Cluster {
    type Packet = Packet;
    type Command = Change;

    fn count(&self) -> usize {
        COUNT
    }

    fn is_alive(&self, node: usize) -> bool {
        match node {
            0..CONTROLS => self.places[node].control.is_some(),
            CLIENT.. => self.places[node - CLIENT].control.is_some(),
            _ => true,
        }
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        self.now = now;
        match packet {
            Packet::Stream(packet) => match node {
                OWNER => self.owner_packet(now, packet, out),
                DATA => self.data_packet(now, packet, out),
                at => self.control_packet(now, at, packet, out),
            },
            Packet::Ask(from, life, request) => {
                let answer = self.etcd.answer(now, *from, request);
                if self.has_etcd(*from) && self.places[*from].life == *life {
                    let answer = Packet::Answer(answer);
                    out.send_in_stream(CLIENT + from, from_etcd(*from), answer);
                }
            }
            Packet::Answer(_) | Packet::Gone => {
                let at = node - CLIENT;
                if let Some(Control { client, .. }) = &mut self.places[at].control {
                    match packet {
                        Packet::Answer(answer) => client.handle_answer(now, answer),
                        _ => client.leader_gone(),
                    }
                }
                self.client_turn(now, at, out);
            }
            Packet::Event => {
                let control = self.places[node].control.as_mut();
                let event = control.and_then(|control| control.client.take_event());
                self.drive(now, node, out, |machine| {
                    if let Some(event) = event {
                        machine.coordinator_mut().handle_event(event);
                        machine.coordinator_changed(now);
                    }
                });
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        self.now = now;
        match node {
            ETCD => {
                for at in self.etcd.expire(now) {
                    if self.has_etcd(at) {
                        out.send_in_stream(CLIENT + at, gone(at), Packet::Gone);
                    }
                }
            }
            OWNER => self.drive_owner(now, out),
            VIEWER if self.viewer.request_at.is_some_and(|at| at <= now) => self.request(now, out),
            VIEWER => {}
            DATA => {
                if self.data.dial_at.is_some_and(|at| at <= now) {
                    self.dial(now);
                }
                self.drive_data(now, out);
            }
            LINK => {
                for at in 0..CONTROLS {
                    if self.places[at].cut.is_some_and(|(_, until)| until <= now) {
                        self.heal(at, out);
                    }
                }
            }
            CLIENT.. => self.client_turn(now, node - CLIENT, out),
            at => self.drive(now, at, out, |_| ()),
        }
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        let control = |at: usize| self.places[at].control.as_ref();
        match node {
            ETCD => self.etcd.poll_timeout(),
            OWNER => self.owner.poll_timeout(),
            VIEWER => self.viewer.request_at,
            DATA => self.data.poll_timeout(),
            LINK => {
                let cuts = self.places.iter().filter_map(|place| place.cut);
                cuts.map(|(_, until)| until).min()
            }
            CLIENT.. => control(node - CLIENT)?.client.poll_timeout(),
            at => control(at)?.machine.poll_timeout(),
        }
    }

    fn commands(&self, commands: &mut Vec<Change>) {
        let (setup, counts) = (&self.setup, &self.counts);
        for (at, place) in (0..).zip(&self.places) {
            let Some(control) = &place.control else {
                if counts.returns < setup.returns {
                    commands.push(Change::Return(at));
                }
                continue;
            };
            // The others only wait.
            let is_active = control.machine.coordinator().is_active();
            if !is_active || place.cut.is_some() || self.now > START + setup.until {
                continue;
            }
            if counts.deaths < setup.deaths {
                commands.push(Change::Die(at));
            }
            if counts.etcd_cuts < setup.etcd_cuts {
                commands.push(Change::CutFromEtcd(at));
            }
            if counts.cuts < setup.cuts {
                commands.push(Change::Cut(at));
            }
        }
        // Only then it matters whom the data node obeys.
        let is_split = self.actives().count() == CONTROLS;
        if is_split && self.data.conn.is_some() && counts.breaks < setup.breaks {
            commands.push(Change::Break);
        }
        if setup.leaves && self.viewer.request_at.is_some() {
            commands.push(Change::Leave);
        }
    }

    fn command(&mut self, now: Instant, change: &Change, out: &mut Outbox<Packet>) {
        match *change {
            Change::Join => self.request(now, out),
            Change::Leave => {
                (self.viewer.request_at, self.viewer.addresses) = (None, None);
                for at in 0..CONTROLS {
                    if self.is_reachable(at) {
                        self.drive(now, at, out, |machine| machine.leave(now, &session()));
                    }
                }
            }
            Change::Die(at) => {
                self.counts.deaths += 1;
                self.die(at, out);
            }
            Change::Return(at) => {
                self.counts.returns += 1;
                let seed = 1 + at as u8 + 2 * self.places[at].life as u8;
                self.places[at].control = Some(control(now, self.setup.is_blind, seed, true));
            }
            Change::CutFromEtcd(at) => {
                self.counts.etcd_cuts += 1;
                self.cut(now, at, Cut::Etcd, out);
            }
            Change::Cut(at) => {
                self.counts.cuts += 1;
                self.cut(now, at, Cut::All, out);
            }
            Change::Break => {
                self.counts.breaks += 1;
                self.streams.break_all(|ends| ends.contains(&DATA), out);
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        for place in &self.places {
            if let Some(Control { machine, client }) = &place.control {
                let skipped = [&SKIPPED[..], &["sequence"]].concat();
                fingerprint.debug_hiding(machine, &skipped, &RANDOM);
                fingerprint.hash(&machine.config().restarting);
                fingerprint.debug(client);
            }
            fingerprint.hash(&(place.control.is_some(), place.life));
            fingerprint.hash(&(place.cut, place.is_dialling));
        }
        self.owner.fingerprint(fingerprint);
        self.data.fingerprint(fingerprint);
        fingerprint.hash(&(&self.etcd, &self.viewer, &self.streams, self.counts));
    }

    fn check(&self, now: Instant) -> Result<(), String> {
        self.check_state(now)
    }

    fn check_end(&mut self, _: Instant) -> Result<(), String> {
        match (self.check_active()?, self.viewer.request_at) {
            (None, _) => Ok(()),
            (Some(active), Some(_)) => self.check_served(active),
            (Some(active), None) => self.check_released(active),
        }
    }
}
