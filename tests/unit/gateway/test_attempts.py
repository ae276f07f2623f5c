"""What an audit line says about a refused attempt, and what it never says."""

from __future__ import annotations

import pytest

from headgate.gateway.answered_here.admin_listener import admin_plans
from headgate.gateway.answered_here.denials import attempted
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.commands import Ask
from headgate.wire.header import parse_request_header
from headgate.wire.messages import configs, draft, encode_request, quotas


def asked(frame: bytes, *, drafted: bool = False) -> Ask:
    plan = (admin_plans() if drafted else build_plans())[int.from_bytes(frame[4:8], "big")]
    if drafted:
        offset = draft.body_offset(frame)
    else:
        _, _, _, _, offset = parse_request_header(frame)
    return Ask(plan, 7, "tool", offset, frame, "mallory", client_ip="192.0.2.7")


def altering(entities: int) -> bytes:
    entries = tuple(
        quotas.AlterEntry(
            (quotas.EntityPart("user", f"u{n}"), quotas.EntityPart("client-id", None)),
            (
                quotas.AlterOp("producer_byte_rate", 1e9, False),
                quotas.AlterOp("request_percentage", 0.0, True),
            ),
        )
        for n in range(entities)
    )
    return encode_request(49, 1, 7, "tool", quotas.AlterClientQuotasRequest(entries, False))


def test_a_refused_change_of_quotas_names_entity_values_and_address() -> None:
    assert attempted(asked(altering(1))) == (
        "{user=u0, client-id=<default>}",
        "producer_byte_rate=1000000000, request_percentage=none from 192.0.2.7",
    )


def test_the_same_in_the_drafts_words() -> None:
    parts = (draft.DraftEntityPart("user", "u0"),)
    entry = draft.DraftAlterEntry(
        parts, (draft.DraftAlterOp("producer_byte_rate", "bps", 7, False),)
    )
    frame = draft.encode_request(50, 7, "tool", draft.AlterQuotasRequest((entry,), False))
    assert attempted(asked(frame, drafted=True)) == (
        "{user=u0}",
        "producer_byte_rate:bps=7 from 192.0.2.7",
    )


@pytest.mark.parametrize(("key", "version"), [(33, 2), (44, 1)])
def test_settings_of_brokers_are_named_but_no_value_that_may_be_a_secret(
    key: int, version: int
) -> None:
    resource = configs.AlterResource(
        configs.BROKER,
        "1",
        (
            configs.AlterConfig("max.connections", "5"),
            configs.AlterConfig("ssl.keystore.password", "hunter2"),
        ),
    )
    frame = encode_request(key, version, 7, "tool", configs.AlterConfigsRequest((resource,)))
    subject, detail = attempted(asked(frame))
    assert subject == "broker 1"
    assert detail == "max.connections=5, ssl.keystore.password from 192.0.2.7"


def test_what_is_large_is_not_read_and_what_is_long_is_cut() -> None:
    frame = altering(1_000)
    assert attempted(asked(frame)) == ("", f"a request of {len(frame)} bytes from 192.0.2.7")
    subject, detail = attempted(asked(altering(20)))
    assert len(subject) == len(detail) == 300
    assert subject.endswith("…")


def test_what_cannot_be_read_is_still_told_with_its_address() -> None:
    frame = altering(1)
    assert attempted(asked(frame[:40])) == ("", "from 192.0.2.7")
