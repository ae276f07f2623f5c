"""
Faults to be planted in the product while a life is lived: each is a way to lose a law.

A plant gets pytest's ``MonkeyPatch`` and changes what decides. ``test_planted`` holds that the laws
find every one of them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.gateway.broker import broker, dialing
from headgate.gateway.broker import clients as broker_clients
from headgate.gateway.charging import gates, hold, lanes
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.cluster import listener_security
from headgate.gateway.connection import link, transports
from headgate.gateway.session import (
    answers,
    fetch,
    produce,
    relay,
    requests,
    session,
)
from headgate.throttle import manager

Patch = Any
Plant = Callable[[Patch], None]


def mute_ends_early(patch: Patch) -> None:
    whole = session.Session.start_throttle

    def start_throttle(self: Any, throttle_ms: int, *more: Any) -> None:
        whole(self, max(throttle_ms * 9 // 10, 1), *more)

    patch.setattr(session.Session, "start_throttle", start_throttle)


def debt_forgotten_on_reconnect(patch: Patch) -> None:
    patch.setattr(lanes.LaneBook, "leave", lambda *_: None)


def newcomer_served_although_it_owes(patch: Patch) -> None:
    patch.setattr(session.Session, "debts_end_ms", lambda self, plan, now_ms: now_ms)


def lane_shared_by_two(patch: Patch) -> None:
    """The earliest unpaid end is shown to each newcomer, and taken by none."""

    def take(self: Any, key: Any, now_ms: int) -> Any:
        return next((lane for lane in self._lanes.get(key, ()) if lane.end_ms > now_ms), None)

    patch.setattr(lanes.LaneBook, "take", take)


def nobody_waits_for_who_repays(patch: Patch) -> None:
    """Who took an end looks open after it has hung up unseen: the next one passes."""
    patch.setattr(lanes.Queue, "wait", lambda *_: 0)


def fetch_gate_stays_open(patch: Patch) -> None:
    patch.setattr(gates.Gates, "any_at", lambda self, keys: False)


def fetch_gate_opens_early(patch: Patch) -> None:
    """It is closed for half of Kafka's throttle, as by a measured rate."""
    whole = gates.Gate.charged

    def charged(self: Any, throttle_ms: int, *more: Any) -> None:
        whole(self, throttle_ms // 2, *more)

    patch.setattr(gates.Gate, "charged", charged)


def long_polls_pass_a_closed_gate(patch: Patch) -> None:
    """Requests are held; answers to what was asked before the gate closed are not."""
    patch.setattr(fetch, "_answer_way", lambda *_: hold.PASS)


def share_fetches_pass_a_closed_gate(patch: Patch) -> None:
    """They are collected and passed on, whatever their quota-id owes."""
    _handler(patch, fetch.on_share_request, lambda *_: relay.COLLECT)


def late_acks_taken_for_all(patch: Patch) -> None:
    """A client that wants no answer gets none charged, if its acks come late."""
    whole = produce._late_acks

    def late_acks(*args: Any) -> int | None:
        return None if whole(*args) is None else -1

    patch.setattr(produce, "_late_acks", late_acks)


def answer_swallowed_at_a_hang_up(patch: Patch) -> None:
    """What a broker said last isn't told when it has ended the connection."""
    whole = transports.BrokerSide.buffer_updated

    def buffer_updated(self: Any, nbytes: int) -> None:
        if not self.transport.end.ended:
            whole(self, nbytes)

    patch.setattr(transports.BrokerSide, "buffer_updated", buffer_updated)


def acknowledgement_invented(patch: Patch) -> None:
    """A broker's error becomes none."""
    whole = produce.answered_in_place

    def answered_in_place(own: Any, data: Any, pos: int, size: int, now_ms: int) -> bool:
        at = pos + (17 if own.unanswered[0][1].version >= 9 else 23)
        data[at : at + 2] = b"\0\0"
        return whole(own, data, pos, size, now_ms)

    patch.setattr(produce, "answered_in_place", answered_in_place)


def held_answer_charged_by_its_deadline(patch: Patch) -> None:
    """As it was until the simulator found it: seed 1938."""
    whole = session.Session.wake

    def wake(self: Any, now_ms: int, due_ms: int = 0) -> None:
        hold = self.hold
        if hold is not None and hold.waiting:
            now_ms = max(now_ms, due_ms)
        whole(self, now_ms, due_ms)

    patch.setattr(session.Session, "wake", wake)


def charge_made_twice(patch: Patch) -> None:
    """At a hang-up what is in flight is charged, although it was charged when it passed."""
    whole = session.Session._charge_cut

    def charge_cut(self: Any, now_ms: int) -> None:
        for asked in self.unanswered:
            if asked.plan.kind is RequestKind.PRODUCE:
                _, plan, size, context, *_ = asked
                self.rules.produce(self, context, plan, size, None, True, now_ms)
        whole(self, now_ms)

    patch.setattr(session.Session, "_charge_cut", charge_cut)


def cut_request_uncharged(patch: Patch) -> None:
    """Of a produce that is cut short nothing is charged."""
    whole = session.Session._charge_cut

    def charge_cut(self: Any, now_ms: int) -> None:
        self.begun = None
        whole(self, now_ms)

    patch.setattr(session.Session, "_charge_cut", charge_cut)


def acks_0_uncharged(patch: Patch) -> None:
    whole = relay.passed

    def passed(*args: Any, silent: bool = False) -> None:
        if not silent:
            whole(*args)

    for module in (relay, produce):
        patch.setattr(module, "passed", passed)


def answers_out_of_order(patch: Patch) -> None:
    whole = answers.AnswerReader.feed

    def feed(self: Any, own: Any, data: Any, now_ms: int) -> None:
        before = self._left
        whole(self, own, data, now_ms)
        out = own.to_client
        if len(out) == 2 and not before and not self._left:
            out.reverse()

    patch.setattr(answers.AnswerReader, "feed", feed)


def buffer_without_bound(patch: Patch) -> None:
    def grown(self: Any, by_bytes: int) -> None:
        self.size += by_bytes

    patch.setattr(requests.HeldBytes, "_grown", grown)


def throttle_a_millisecond_off(patch: Patch) -> None:
    whole = manager.throttle_time_ms
    patch.setattr(manager, "throttle_time_ms", lambda *args: whole(*args) + 1)


def mute_begins_when_the_answer_has_come(patch: Patch) -> None:
    """As it was until the simulator found it: seed 19."""
    answered, ended = fetch.answered, answers.AnswerReader._continue
    due: dict[int, int] = {}

    def begin(own: Any, data: Any, pos: int, size: int, asked: Any, now_ms: int) -> Any:
        until_ms = own.throttled_until_ms
        before = own.waits, until_ms, own._throttle_ends_ms, own._decided_ends_ms
        found = answered(own, data, pos, size, asked, now_ms)
        if own.throttled_until_ms > until_ms and len(data) - pos < size + 4:
            due[id(own.answers)] = own.throttled_until_ms - now_ms
            own.waits, own.throttled_until_ms, own._throttle_ends_ms, own._decided_ends_ms = before
        return found

    def go_on(self: Any, own: Any, data: Any, now_ms: int) -> Any:
        if 0 < self._left <= len(data) and due.get(id(self)):
            own.start_throttle(due.pop(id(self)), own.told, now_ms)
        return ended(self, own, data, now_ms)

    patch.setattr(fetch, "answered", begin)
    patch.setattr(answers.AnswerReader, "_continue", go_on)


def reload_closes_connections_over_tls(patch: Patch) -> None:
    """They are made to come again, and see the certificate that is in force now."""
    whole = broker.Broker.reload

    def reload(self: Any, *args: Any) -> None:
        whole(self, *args)
        for one in list(self.links):
            if one.client.tls:
                one.close("reloaded")

    patch.setattr(broker.Broker, "reload", reload)


def reload_keeps_the_certificate(patch: Patch) -> None:
    whole = dialing.BrokerListener.take

    def take(self: Any, parts: Any) -> None:
        whole(self, parts._replace(server_tls=getattr(self, "server_tls", parts.server_tls)))

    patch.setattr(dialing.BrokerListener, "take", take)


def broken_key_store_put_in_force(patch: Patch) -> None:
    """The settings that can be used are in force, and TLS without a certificate isn't TLS."""
    whole = listener_security.ListenerSecurity._made
    before: dict[str, Any] = {}

    def made(self: Any, name: str, *given: Any) -> Any:
        try:
            found = before[name] = whole(self, name, *given)
        except ConfigError:
            bare = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            found = before[name]._replace(server_tls=bare)
        return found

    patch.setattr(listener_security.ListenerSecurity, "_made", made)


def failed_handshake_keeps_its_slot(patch: Patch) -> None:
    whole = broker_clients.Clients._not_taken

    def not_taken(self: Any, listener: Any, sock: Any, address: str, *more: Any) -> None:
        self._quotas.admit(listener.name, address, 0)
        whole(self, listener, sock, address, *more)

    patch.setattr(broker_clients.Clients, "_not_taken", not_taken)


def charge_lost_at_a_hang_up_over_tls(patch: Patch) -> None:
    """What is half passed on isn't charged when TLS's goodbye comes."""
    whole = link.Link.lost

    def lost(self: Any, side: Any, exc: Any) -> None:
        if side is self.client and side.tls:
            self.session.begun = None
        whole(self, side, exc)

    patch.setattr(link.Link, "lost", lost)


def way_to_the_broker_stays_open_over_tls(patch: Patch) -> None:
    whole = transports.BrokerSide.close

    def close(self: Any) -> None:
        if not self.tls:
            whole(self)

    patch.setattr(transports.BrokerSide, "close", close)
    patch.setattr(transports.BrokerSide, "abort", close)


def closed_connection_keeps_its_timers(patch: Patch) -> None:
    """As it was: a muted client that hung up was kept until its mute would have ended."""
    patch.setattr(link.Timers, "close", lambda self: None)


def _handler(patch: Patch, before: Any, after: Any) -> None:
    """Have the request reader call another handler."""
    handlers = tuple(after if one is before else one for one in requests._HANDLERS)
    patch.setattr(requests, "_HANDLERS", handlers)


PLANTS: Final[tuple[tuple[Plant, frozenset[str]], ...]] = tuple(
    (plant, frozenset(laws))
    for plant, laws in (
        (mute_ends_early, ("mutes",)),
        (debt_forgotten_on_reconnect, ("ending never gains",)),
        (newcomer_served_although_it_owes, ("ending never gains",)),
        (lane_shared_by_two, ("ending never gains",)),
        (nobody_waits_for_who_repays, ("ending never gains",)),
        (fetch_gate_stays_open, ("gates", "ending never gains")),
        (fetch_gate_opens_early, ("gates",)),
        (long_polls_pass_a_closed_gate, ("gates",)),
        (share_fetches_pass_a_closed_gate, ("gates",)),
        (
            late_acks_taken_for_all,
            ("charged when passed", "order", "answers", "charged once", "kept", "waiting"),
        ),
        (closed_connection_keeps_its_timers, ("at rest",)),
        (answer_swallowed_at_a_hang_up, ("answers",)),
        (acknowledgement_invented, ("acknowledged",)),
        (held_answer_charged_by_its_deadline, ("Kafka's decisions", "gates")),
        (charge_made_twice, ("charged once",)),
        (cut_request_uncharged, ("charged once",)),
        (acks_0_uncharged, ("charged when passed", "charged once")),
        (answers_out_of_order, ("order", "answers")),
        (buffer_without_bound, ("memory",)),
        (throttle_a_millisecond_off, ("Kafka's decisions",)),
        (mute_begins_when_the_answer_has_come, ("waiting",)),
        (reload_closes_connections_over_tls, ("kept",)),
        (reload_keeps_the_certificate, ("certificates",)),
        (broken_key_store_put_in_force, ("certificates",)),
        (failed_handshake_keeps_its_slot, ("at rest",)),
        (charge_lost_at_a_hang_up_over_tls, ("charged once",)),
        (way_to_the_broker_stays_open_over_tls, ("at rest",)),
    )
)
"""Each fault, and the laws that may find it."""
MOST_LIVES: Final = 25
"""Lives from there on in which a planted fault has to be found."""
FOUND_AT: Final[dict[str, int]] = {
    "debt_forgotten_on_reconnect": 1,
    "newcomer_served_although_it_owes": 1,
    "lane_shared_by_two": 5,
    "nobody_waits_for_who_repays": 80,
    "fetch_gate_stays_open": 6,
    "fetch_gate_opens_early": 17,
    "long_polls_pass_a_closed_gate": 9,
    "share_fetches_pass_a_closed_gate": 17,
    "late_acks_taken_for_all": 2,
    "answer_swallowed_at_a_hang_up": 83,
    "acknowledgement_invented": 130,
    "held_answer_charged_by_its_deadline": 297,
    "charge_made_twice": 3,
    "cut_request_uncharged": 2,
    "answers_out_of_order": 4,
    "buffer_without_bound": 2,
    "mute_begins_when_the_answer_has_come": 24,
    "reload_closes_connections_over_tls": 7,
    "reload_keeps_the_certificate": 7,
    "broken_key_store_put_in_force": 18,
    "failed_handshake_keeps_its_slot": 18,
    "charge_lost_at_a_hang_up_over_tls": 7,
    "way_to_the_broker_stays_open_over_tls": 7,
}
"""A seed that finds each fault; 0 for the rest."""
