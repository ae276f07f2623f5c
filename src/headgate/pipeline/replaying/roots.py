"""
Say under which root a charge is packed. A root is what the charge's sensors have in common under
all plans.

Where all plans agree on a charge's quota-id, its root is its sensor. Where they don't, every sensor
that any plan limits must find all its charges under one root. That root is the user where quotas
are of users and of users' client-ids. It is the client-id where they are of client-ids and of
users' client-ids. It is the whole broker where one plan limits users and another limits client-ids
across users. A sensor that no plan limits never throttles, so its charges may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from headgate.pipeline.quotas import Quotas, key_of
from headgate.pipeline.replaying.packed_format import BOTH, CLIENT, NOBODY, ROOT, USER
from headgate.quota.key import PRODUCER_IDS
from headgate.throttle.overrides import (
    CLIENT_ID_FLAG,
    USER_CLIENT_ID_FLAG,
    USER_FLAG,
    Tags,
    flag_of,
)

Whose = tuple[str | None, str | None]
"""A charge's principal and client-id."""


class Root(Enum):
    """What charges are packed under."""

    SENSOR = "the sensor itself"
    USER = "the user"
    CLIENT = "the client-id"
    PAIR = "the user and the client-id"
    ALL = "all there are"

    def tags(self, user: str, client_id: str, sensor: Tags) -> Tags:
        """
        Return a charge's root.

        Args:
            user: its principal.
            client_id: its own.
            sensor: tags of its sensor, if all plans agree.
        """
        if self is Root.SENSOR:
            return sensor
        return (
            user if self in (Root.USER, Root.PAIR) else "",
            client_id if self in (Root.CLIENT, Root.PAIR) else "",
        )


def root_of(plans: Sequence[Quotas], quota_type: str) -> Root:
    """
    Return what charges of a type are packed under.

    Args:
        plans: all that charge the type.
        quota_type: ``producer_byte_rate``, or with a unit that Kafka doesn't have.
    """
    key = key_of(quota_type)
    entities = [
        (
            p.starts_ms,
            tuple((frozenset(t.for_key(key)), key in t.static_defaults) for t in p.tables),
        )
        for p in plans
    ]
    if all(e == entities[0] for e in entities):
        return Root.SENSOR
    if key == PRODUCER_IDS:
        return Root.USER
    levels = {flag_of(e.user, e.client_id) for _, tables in entities for t, _ in tables for e in t}
    if any(static for _, tables in entities for _, static in tables):
        levels.add(CLIENT_ID_FLAG)
    if {USER_FLAG, CLIENT_ID_FLAG} <= levels:
        return Root.ALL
    if USER_FLAG in levels:
        return Root.USER
    if CLIENT_ID_FLAG in levels or USER_CLIENT_ID_FLAG not in levels:
        return Root.CLIENT
    return Root.PAIR


def layer_of(tags: Tags, root: Tags) -> int:
    """Return the layer of a charge's sensor: how its tags follow from the charge and its root."""
    if tags == root:
        return ROOT
    user, client_id = tags
    if user:
        return BOTH if client_id else USER
    return CLIENT if client_id else NOBODY


def tags_of(layer: int, root: Tags, whose: Whose) -> Tags:
    """Return the tags of a charge's sensor in a layer: the other way round."""
    if layer == ROOT:
        return root
    user = whose[0] if layer in (USER, BOTH) else ""
    client_id = whose[1] if layer in (CLIENT, BOTH) else ""
    return user or "", client_id or ""
