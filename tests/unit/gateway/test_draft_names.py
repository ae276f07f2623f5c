"""What an API is called where: KIP-546's draft names on the admin listener, Kafka's elsewhere."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headgate.gateway.answered_here.admin_listener import admin_plans
from headgate.gateway.charging.plans import RequestKind, build_plans
from headgate.gateway.session.commands import Ask
from headgate.store.base import AuditEvent

from .conftest import support_of


@pytest.mark.parametrize(
    ("key", "draft", "kafka"),
    [
        (48, "DescribeQuotas", "DescribeClientQuotas"),
        (49, "DescribeEffectiveQuotas", "AlterClientQuotas"),
        (50, "AlterQuotas", "DescribeUserScramCredentials"),
    ],
)
async def test_546_audit_and_log_lines_name_the_draft_on_the_admin_listener_only(
    key: int, draft: str, kafka: str, caplog: pytest.LogCaptureFixture
) -> None:
    audited: list[AuditEvent] = []
    history, told = SimpleNamespace(audit=audited.append), SimpleNamespace(silent=None)
    answers = support_of(SimpleNamespace(history=history, availability=told))
    for plans in (admin_plans(), build_plans()):
        await answers.refused(Ask(plans[key << 16], 1, "tool", 8, b"", "mallory"), "tool")
    assert [event.action for event in audited] == [draft, kafka]
    assert [f"api={draft}" in caplog.messages[0], f"api={kafka}" in caplog.messages[1]] == [
        True
    ] * 2


def test_the_admin_listener_serves_the_drafts_only_version() -> None:
    drafted = {plan.version for plan in admin_plans().values() if plan.kind is RequestKind.DRAFT}
    assert drafted == {0}
