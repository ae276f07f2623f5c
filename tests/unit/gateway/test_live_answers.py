"""Who may ask a gateway what goes on: administrators about all, anybody about itself alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.errors import KafkaError
from headgate.gateway.answered_here.live import LiveAnswers
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.identity.identity import ANONYMOUS
from headgate.gateway.session.commands import Ask
from headgate.live.picture import decode
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.steps import finish
from headgate.wire import header
from headgate.wire.messages import decode_response, encode_request, live

DENIED = int(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
QUOTAS = QuotaTable.of(
    {
        QuotaEntity.of(user="alice"): {PRODUCER: 5.0},
        QuotaEntity.of(user="bob", client_id="secret-feed"): {PRODUCER: 7.0},
        QuotaEntity.of(user="bob"): {PRODUCER: 9.0},
    }
)


class _Answers:
    """What the answers of a gateway are asked for."""

    def __init__(self) -> None:
        self.denied: list[str] = []
        settings = Settings.from_properties({"headgate.upstream": "embedded"})
        self.in_force = SimpleNamespace(table=QUOTAS, settings=settings)
        self.slices = SimpleNamespace(run=self._run)

    async def _run(self, steps: Any) -> Any:
        return finish(steps)

    async def on_thread(self, call: Any) -> Any:
        return call()

    def may_administer(self, principal: str) -> bool:
        return principal == "root"

    async def refused(self, ask: Ask, name: str) -> None:
        self.denied.append(ask.principal)


def asked(
    principal: str, user: str | None, client_id: str | None, kind: RequestKind
) -> tuple[live.LiveResponse, list[str]]:
    """Return the answer to a question, and who was written down as refused."""
    answers = _Answers()
    frame = encode_request(live.LIVE, 0, 7, "app", live.LiveRequest(user, client_id, 100))
    plan: Any = SimpleNamespace(kind=kind)
    body = header.parse_request_header(frame)[4]
    ask = Ask(plan, 7, "app", body, frame, principal)
    told = LiveAnswers({}, lambda: None, lambda broker: False, lambda: "gateway-1")
    raw = asyncio.run(told.answer(answers, 1, ask))  # type: ignore[arg-type]
    return decode_response(live.LIVE, 0, raw), answers.denied


@pytest.mark.parametrize(
    "kind", [RequestKind.ASK, RequestKind.DRAFT], ids=["data port", "admin port"]
)
@pytest.mark.parametrize("client_id", [None, "secret-feed"])
@pytest.mark.parametrize("principal", ["alice", "root", ANONYMOUS, "", "Alice", "alice "])
@pytest.mark.parametrize(
    "user", [None, "alice", "bob", "nobody", ANONYMOUS, "", "root", "User:bob"]
)
def test_only_administrators_ask_about_others(
    principal: str, user: str | None, client_id: str | None, kind: RequestKind
) -> None:
    answer, denied = asked(principal, user, client_id, kind)
    own = user == principal and principal != ANONYMOUS
    if principal == "root" or own:
        assert (answer.error_code, denied) == (0, [])
        assert answer.picture is not None
        picture = decode(answer.picture)
        assert picture.user == user
        if principal != "root":
            assert b"bob" not in answer.picture
    else:
        assert (answer.error_code, answer.picture) == (DENIED, None)
        assert denied == [principal]
