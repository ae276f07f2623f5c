"""The settings files that embedded servers are given."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator

import pytest

from headgate.embedded import properties


def test_a_cluster_id_never_starts_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    dashed = uuid.UUID(bytes=b"\xf8" * 16)
    plain = uuid.UUID(bytes=bytes(range(16)))
    drawn: Iterator[uuid.UUID] = iter([dashed, dashed, plain])
    monkeypatch.setattr("headgate.embedded.properties.uuid.uuid4", lambda: next(drawn))
    assert base64.urlsafe_b64encode(dashed.bytes).startswith(b"-")

    cluster_id = properties.new_cluster_id()

    assert base64.urlsafe_b64decode(cluster_id + "==") == plain.bytes
    assert len(cluster_id) == 22
