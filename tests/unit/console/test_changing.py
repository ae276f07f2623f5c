"""Pages Change, Plan and Raises: shown first, made as shown, kept in the history and the audit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.console.app import make_app
from headgate.console.pages import PAGES
from headgate.console.raises import MOST_OPEN, Raises, State
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.console import HOSTILE, QUOTA, TENANTS, Browser, Console
from kit.journals import traffic, write_journal

ALICE = QuotaEntity.of(user="alice")
PAIR = QuotaEntity.of(user="alice", client_id="app-0")
SET = {"user": "alice", "key": "producer_byte_rate", "value": "2MB/s"}
ASK = {**SET, "client-id": "app-0", "reason": "a new feed"}
FILE = "quotas:\n- entity: {user: alice}\n  producer_byte_rate: 3MB/s\n"


def fields(page: Any) -> dict[str, str]:
    """The hidden fields of the last form of a page."""
    form = page.text.rpartition("<form")[2]
    found = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return {name: value for name, value in found if name != "csrf"}


def value_of(console: Console, entity: QuotaEntity = ALICE) -> float | None:
    return console.store.snapshot().get(entity, PRODUCER)


def preview(client: Browser, **more: str) -> dict[str, str]:
    answer = client.send_form("/change/preview", SET | more)
    assert answer.status_code == 200, answer.text
    return fields(answer)


@pytest.fixture
def journal(console: Console, tmp_path: Path) -> Path:
    """A console that reads a journal."""
    folder = tmp_path / "journal"
    folder.mkdir()
    now = console.parts.clock_ms()
    _, events = traffic(now, users=("alice", "bob"), client_ids=("app-0", "app-1"))
    write_journal(folder, events)
    console.parts = replace(console.parts, journal=folder)
    console.app = make_app(console.parts, console.access)
    return folder


# --- Change


def test_any_other_user_with_a_name_beside_it_is_refused_and_changes_no_default(
    console: Console,
) -> None:
    client = console.client("operator")
    answer = client.send_form("/change/preview", SET | {"user-is": "any"})
    assert answer.status_code == 422
    assert "any other user has no name, and alice stands beside it" in answer.text


def test_a_name_that_looks_like_another_and_a_removal_of_nothing_are_said(
    console: Console,
) -> None:
    client = console.client("operator")
    answer = client.send_form("/change/preview", SET | {"user": "User:alice"})
    assert "Kafka names users without their type: alice" in answer.text
    answer = client.send_form("/change/preview", SET | {"remove": "yes"})
    assert "has no producer_byte_rate: nothing is removed" in answer.text


@pytest.mark.parametrize("without", [(), ("producer_byte_rate:shares",)])
def test_546_9_the_console_says_that_shares_lack_a_capacity(
    console: Console, without: tuple[str, ...]
) -> None:
    [broker] = console.live.shown.brokers
    brokers = (msgspec.structs.replace(broker, without_capacity=without),)
    console.live.shown = msgspec.structs.replace(console.live.shown, brokers=brokers)
    change = {"user": "alice", "key": "producer_byte_rate:shares", "value": "2"}
    answer = console.client("operator").send_form("/change/preview", change)
    assert answer.status_code == 200
    said = "the gateway has no headgate.capacity.producer_byte_rate"
    assert (said in answer.text) == bool(without)


def test_a_quota_is_previewed_set_with_a_reason_and_taken_back(console: Console) -> None:
    client = console.client("operator")
    shown = client.send_form("/change/preview", SET)
    assert "2 MB/s" in shown.text
    assert value_of(console) is None
    assert client.send_form("/change/apply", fields(shown)).status_code == 422  # no reason
    assert value_of(console) is None
    made = client.send_form("/change/apply", {**fields(shown), "reason": "a <b>feed</b>"})
    assert made.status_code == 303
    assert value_of(console) == 2e6
    entry = console.store.history.entries()[-1]
    assert (entry.who, entry.message, entry.tool) == (
        "operator",
        "a <b>feed</b>",
        "headgate console",
    )
    assert made.headers["location"] == f"/change?done={entry.change}"
    page = client.get(made.headers["location"]).text
    assert "a &lt;b&gt;feed" in page
    undo = client.get(f"/change/undo?change={entry.change}")
    assert "removed" in undo.text
    assert value_of(console) == 2e6
    back = client.send_form("/change/undo", {**fields(undo), "reason": "a mistake"})
    assert back.status_code == 303
    assert value_of(console) is None
    assert console.store.history.entries()[-1].message == "a mistake"
    again = client.get(f"/change/undo?change={entry.change}")
    assert again.status_code == 409
    assert "changed again since" in again.text


def test_what_was_shown_is_not_made_of_other_quotas(console: Console) -> None:
    client = console.client("operator")
    form = preview(client) | {"reason": "r"}
    console.store.alter([QuotaAlteration(PAIR, (Op(PRODUCER, 5.0),))], who="x", tool="x")
    answer = client.send_form("/change/apply", form)
    assert answer.status_code == 409
    assert "Nothing was changed" in answer.text
    assert value_of(console) is None
    assert client.send_form("/change/apply", fields(answer) | {"reason": "r"}).status_code == 303
    assert value_of(console) == 2e6


def test_connected_clients_are_shown_with_what_they_have_and_would_have(console: Console) -> None:
    form = {"entity": "users/alice/clients/app-0", "key": "producer_byte_rate", "remove": "yes"}
    answer = console.client("operator").send_form("/change/preview", form)
    affected = answer.text.partition("Who is affected")[2]
    row = re.search(r"<tr><td[^>]*>user <bdi>alice.*?</tr>", affected, re.DOTALL)
    assert row is not None
    assert "client-id <bdi>app-0</bdi>" in row[0]
    assert "any other user" in row[0]  # falls back to the default of users
    assert "all clients of its user" in row[0]


def test_clients_that_wait_are_told_of_before_the_change(console: Console) -> None:
    operator = console.client("operator")
    form = {**SET, "client-id": "app-0"}
    shown = operator.send_form("/change/preview", form).text
    assert "2 connections of theirs wait now by a quota that this changes, the last for 900 ms" in (
        shown
    )
    assert "doesn't end these waits, as in Kafka" in shown.replace("&#39;", "'")
    assert "1 of 9,000 connected" not in shown and "1 of " in shown
    free = operator.send_form("/change/preview", {**SET, "client-id": "app-1"}).text
    assert "wait now by a quota" not in free


def test_what_the_store_refuses_is_shown_with_kafkas_words_and_cannot_be_made(
    console: Console,
) -> None:
    answer = console.client("operator").send_form("/change/preview", SET | {"value": "0"})
    assert "Quota producer_byte_rate must be greater than 0" in answer.text
    assert "/change/apply" not in answer.text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (SET | {"value": "10Mb"}, "&#39;10Mb&#39; has no unit of producer_byte_rate;"),
        (SET | {"value": "fast"}, "&#39;fast&#39; isn&#39;t a value of producer_byte_rate;"),
        (SET | {"value": ""}, "write a number, or 10MB/s"),
        ({**SET, "user": ""}, "choose a user, a client-id, both, or an address"),
        ({**SET, "ip": "10.0.0.1"}, "no user or client-id beside it"),
        ({**SET, "user": "", "user-is": "named"}, "name the user"),
        (SET | {"key": "nonsense"}, "isn&#39;t a quota that can be set"),
    ],
)
def test_what_cannot_be_understood_is_said(
    console: Console, form: dict[str, str], said: str
) -> None:
    answer = console.client("operator").send_form("/change/preview", form)
    assert answer.status_code == 422
    assert said in answer.text


def test_a_name_that_no_text_field_holds_survives_the_way_through_the_forms(
    console: Console,
) -> None:
    client, entity = console.client("operator"), QuotaEntity.of(user=HOSTILE)
    page = client.get("/change", params={"entity": entity.path})
    assert "<script>alert" not in page.text
    form = {**fields(page), "key": "producer_byte_rate", "value": "7"}
    shown = client.send_form("/change/preview", form)
    assert "<script>alert" not in shown.text
    made = client.send_form("/change/apply", {**fields(shown), "reason": HOSTILE})
    assert made.status_code == 303
    assert value_of(console, entity) == 7
    assert "<script>alert" not in client.get("/change").text


def test_the_last_hour_is_tried_under_the_change(console: Console, journal: Path) -> None:
    form = {"entity": "users/bob/clients/app-1", "key": "producer_byte_rate", "value": "4kB/s"}
    page = console.client("operator").send_form("/change/preview", form).text
    tried = page.partition("What it would have done")[2]
    (row,) = re.findall(r"<td[^>]*>user <bdi>(.*?)</bdi>, client-id <bdi>(.*?)</bdi>", tried)
    assert row == ("bob", "app-1")
    widths = [float(width) for width in re.findall(r'class="fill" width="([\d.]+)"', tried)]
    assert widths[1] == 0 < widths[2] == 100


def test_what_a_client_that_waits_would_do_with_more_is_not_known(
    console: Console, journal: Path
) -> None:
    _, events = traffic(console.now_ms, users=("alice",), client_ids=("app-0",))
    write_journal(journal, [event._replace(throttle_time_ms=60_000) for event in events], 3_001)
    pair = {"entity": PAIR.path, "key": "producer_byte_rate"}
    page = console.client("operator").send_form("/change/preview", {**pair, "value": "5MB/s"}).text
    assert 'not known <span class="small">told to wait 100' in page
    page = console.client("operator").send_form("/change/preview", {**pair, "value": "5kB/s"}).text
    (present, changed) = re.findall(r'<td class="set"[^>]*>(.*?)</td>', page, re.DOTALL)[-2:]
    # Its quota is higher now than 9 kB/s, under which it waited.
    assert "not known" in present and "not known" not in changed
    page = console.client("tenant", "payments").get(asked(console)).text
    assert "Would have been, under the value asked for</dt><dd>not known" in page


def test_undo_says_what_is_not_known_in_place_of_nothing(console: Console, journal: Path) -> None:
    _, events = traffic(console.now_ms, users=("alice",), client_ids=("app-0",))
    # It waits under 9 kB/s; that is raised, and the raise is to be taken back.
    waits = [event._replace(throttle_time_ms=60_000, amount=500.0) for event in events]
    write_journal(journal, waits, 3_001)
    operator = console.client("operator")
    form = {"entity": PAIR.path, "key": "producer_byte_rate"}
    shown = preview(operator, **form, value="5MB/s")
    operator.send_form("/change/apply", {**shown, "reason": "more"})
    name = console.store.history.entries()[-1].change
    page = operator.get(f"/change/undo?change={name}").text
    tried = page.partition("What it would have done")[2]
    who = "user <bdi>alice</bdi>, client-id <bdi>app-0</bdi>"
    (row,) = re.findall(rf"<tr><td[^>]*>{who}.*?</tr>", tried, re.DOTALL)
    told, present, _ = re.findall(r'<td class="set"[^>]*>(.*?)</td>', row, re.DOTALL)
    assert "not known" in present and "not known" not in told


def test_without_a_gateway_it_is_said_that_clients_are_not_known(console: Console) -> None:
    console.app._app.state.parts = replace(console.parts, live=None)  # type: ignore[attr-defined]
    page = console.client("operator").send_form("/change/preview", SET).text
    affected = page.partition("Who is affected")[2].partition("</section>")[0]
    assert "not known: which connected clients get another limit, and who waits now" in affected
    assert "0 of" not in affected and "None of" not in affected


@pytest.mark.parametrize("role", ["viewer", "tenant"])
def test_only_operators_change(console: Console, role: str) -> None:
    client = console.client(role, "payments" if role == "tenant" else "")
    for page in PAGES:
        if page.path in ("/raises/withdraw", "/raises/enough"):  # these are for tenants
            continue
        if "POST" in page.methods and page.path.startswith(("/change", "/plan", "/raises/")):
            assert client.send_form(page.path, SET).status_code == 403, page.path
    assert client.get("/change").status_code == 403


def test_a_form_of_another_site_changes_nothing(console: Console) -> None:
    client = console.client("operator")
    form = {**preview(client), "reason": "r"}
    assert client.post("/change/apply", data=form).status_code == 403
    token = {"csrf": re.findall(r'name="csrf" value="(\w+)"', client.get("/change").text)[0]}
    evil = {"origin": "https://evil.example"}
    assert client.post("/change/apply", data=form | token, headers=evil).status_code == 403
    assert value_of(console) is None


# --- Plan


def upload(client: Browser, text: str, **more: str) -> Any:
    return client.send_form("/plan", more, files={"file": ("quotas.yaml", text.encode())})


def test_a_file_is_compared_applied_and_drift_is_told(console: Console) -> None:
    client = console.client("operator")
    shown = upload(client, FILE)
    assert "3 MB/s" in shown.text
    assert "Left alone" in shown.text  # what the file doesn't mention
    made = client.send_form("/plan/apply", {**fields(shown), "reason": "review 7"})
    assert made.status_code == 303
    assert value_of(console) == 3e6
    assert console.store.history.entries()[-1].message == "review 7"
    page = client.get("/plan").text
    assert "quotas.yaml" in page
    console.store.alter([QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))], who="x", tool="x")
    drift = client.get("/plan").text.partition("Since the last file")[2]
    row = next(row for row in drift.split("<tr>") if "user <bdi>alice</bdi><code" in row)
    assert row.index(">5 B/s<") < row.index(">3 MB/s<")


def test_much_is_removed_only_by_its_number(console: Console) -> None:
    client = console.client("operator")
    before = console.store.snapshot()
    shown = upload(client, FILE, prune="yes")
    form = {**fields(shown), "reason": "clean"}
    assert client.send_form("/plan/apply", form).status_code == 422
    assert client.send_form("/plan/apply", form | {"removals": "3"}).status_code == 422
    assert console.store.snapshot() == before
    many = str(sum(map(len, before.entities.values())))
    assert client.send_form("/plan/apply", form | {"removals": many}).status_code == 303
    assert len(console.store.snapshot()) == 1


def test_a_file_with_mistakes_tells_each_with_its_line(console: Console) -> None:
    client = console.client("operator")
    answer = upload(client, FILE.replace("3MB/s", "3Mb") + "- entity: {nobody: x}\n")
    assert answer.status_code == 422
    assert "quotas.yaml:3" in answer.text
    assert "quotas.yaml:4" in answer.text
    assert client.send_form("/plan", {}).status_code == 422
    assert upload(client, "#" * 4_100_000).status_code == 413


def test_a_file_is_applied_by_who_saw_it_and_as_it_was(console: Console) -> None:
    client = console.client("operator")
    form = {**fields(upload(client, FILE)), "reason": "r"}
    upload(client, FILE.replace("3MB", "9MB"))
    late = client.send_form("/plan/apply", form)
    assert late.status_code == 409
    assert value_of(console) is None


# --- Raises


def asked(console: Console, **more: str) -> str:
    answer = console.client("tenant", "payments").send_form("/raises", ASK | more)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def test_a_raise_is_asked_for_changed_and_granted_with_a_word(
    console: Console, journal: Path
) -> None:
    place = asked(console)
    tenant, operator = console.client("tenant", "payments"), console.client("operator")
    page = tenant.get(place).text
    assert "a new feed" in page
    assert "Told to wait" in page
    assert "30 s" in page  # throttled, of the picture
    shown = operator.send_form("/raises/preview", {"id": "1", "value": "1.5MB/s"})
    assert "1.5 MB/s" in shown.text
    made = operator.send_form("/raises/grant", {**fields(shown), "reason": "as far as it goes"})
    assert made.status_code == 303
    assert value_of(console, PAIR) == 1.5e6
    entry = console.store.history.entries()[-1]
    assert (entry.who, entry.message) == ("operator", "raise 1 of payments: as far as it goes")
    assert [(e.action, e.who) for e in console.store.history.audit_log()] == [
        ("raise_asked", "payments"),
        ("raise_changed", "operator"),
    ]
    assert "as far as it goes" in tenant.get(place).text
    again = operator.send_form("/raises/grant", {**fields(shown), "reason": "twice"})
    assert again.status_code == 409
    assert operator.send_form("/raises/refuse", {"id": "1", "reason": "no"}).status_code == 422
    assert Raises(console.parts.database).get(1).state == State.GRANTED  # type: ignore


def test_a_raise_is_granted_until_a_time(console: Console) -> None:
    asked(console)
    operator = console.client("operator")
    wrong = operator.send_form("/raises/preview", {"id": "1", "value": "2MB/s", "until": "1999-1"})
    assert wrong.status_code == 422 and "until 1999-1: write a time in UTC" in wrong.text
    assert 'name="until" value="1999-1"' in wrong.text
    past = operator.send_form(
        "/raises/preview", {"id": "1", "value": "2MB/s", "until": "1999-01-01"}
    )
    assert past.status_code == 422 and "that has passed" in past.text
    shown = operator.send_form(
        "/raises/preview", {"id": "1", "value": "2MB/s", "until": "2100-01-01"}
    )
    assert "It ends at 2100-01-01 00:00:00 UTC" in shown.text
    made = operator.send_form("/raises/grant", {**fields(shown), "reason": "for the fair"})
    assert made.status_code == 303
    [end] = console.store.ends.kept()
    assert (end.entity, end.value, end.until_ms) == (PAIR, 2e6, 4_102_444_800_000)
    assert end.message == "raise 1 of payments: for the fair"


def test_a_raise_is_refused_with_a_word(console: Console) -> None:
    place = asked(console)
    operator = console.client("operator")
    assert operator.send_form("/raises/refuse", {"id": "1", "reason": " "}).status_code == 422
    assert operator.send_form("/raises/refuse", {"id": "1", "reason": "no room"}).status_code == 303
    assert "no room" in console.client("tenant", "payments").get(place).text
    assert value_of(console, PAIR) == QUOTA
    assert console.store.history.audit_log()[-1].action == "raise_refused"


def test_an_ask_is_withdrawn_by_its_tenant_alone_and_while_it_is_open(console: Console) -> None:
    place = asked(console)
    tenant, operator = console.client("tenant", "payments"), console.client("operator")
    assert "Withdraw this ask" in tenant.get(place).text
    for other in (console.client("tenant", "search"), operator):
        assert other.send_form("/raises/withdraw", {"id": "1"}).status_code in (403, 404)
    assert tenant.send_form("/raises/withdraw", {"id": "1"}).status_code == 303
    assert "withdrawn" in tenant.get("/raises").text
    assert "Withdraw this ask" not in tenant.get(place).text
    assert console.store.history.audit_log()[-1].action == "raise_withdrawn"
    assert tenant.send_form("/raises/withdraw", {"id": "1"}).status_code == 422
    shown = operator.send_form("/raises/preview", {"id": "1", "value": "2MB/s"})
    answer = operator.send_form("/raises/grant", {**fields(shown), "reason": "late"})
    assert "It was answered before" in answer.text and value_of(console, PAIR) == QUOTA


def test_less_than_it_has_is_neither_asked_for_nor_granted_as_a_raise(console: Console) -> None:
    tenant, operator = console.client("tenant", "payments"), console.client("operator")
    less = tenant.send_form("/raises", ASK | {"value": "1MB/s"})
    assert less.status_code == 422
    assert "It has 1 MB/s now, so 1 MB/s would be no raise." in less.text
    free = tenant.send_form("/raises", ASK | {"key": "consumer_byte_rate"})
    assert free.status_code == 422 and "No quota limits that now" in free.text
    asked(console)
    shown = operator.send_form("/raises/preview", {"id": "1", "value": "500kB/s"})
    answer = operator.send_form("/raises/grant", {**fields(shown), "reason": "half"})
    assert answer.status_code == 409 and "500 kB/s would be no raise" in answer.text
    assert value_of(console, PAIR) == QUOTA
    assert Raises(console.parts.database).get(1).state == State.OPEN  # type: ignore


def test_a_raise_is_granted_of_the_quotas_that_were_shown(console: Console) -> None:
    asked(console)
    operator = console.client("operator")
    shown = operator.send_form("/raises/preview", {"id": "1", "value": "2MB/s"})
    console.store.alter([QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))], who="x", tool="x")
    answer = operator.send_form("/raises/grant", {**fields(shown), "reason": "ok"})
    assert answer.status_code == 409
    assert value_of(console, PAIR) == QUOTA
    assert Raises(console.parts.database).get(1).state == State.OPEN  # type: ignore
    answer = operator.send_form("/raises/grant", {**fields(answer), "reason": "ok"})
    assert answer.status_code == 303


def test_a_tenant_sees_and_asks_for_its_own_alone(console: Console, journal: Path) -> None:
    place = asked(console)
    other = console.client("tenant", "search")
    foreign, unknown = other.get(place), other.get("/raises/one?id=99")
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text
    assert "alice" not in other.get("/raises").text
    for user in ("alice", "nobody", ""):
        assert other.send_form("/raises", ASK | {"user": user}).status_code == 404
    page = console.client("tenant", "payments").get(place).text
    assert "bob" not in page
    assert "shared" not in page
    assert "10.9.9.9" not in page


def test_who_asked_cannot_answer(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TENANTS, "operator", frozenset({"alice"}))
    answer = console.client("tenant", "operator").send_form("/raises", ASK)  # the same name
    assert answer.status_code == 303
    operator = console.client("operator")
    shown = operator.send_form("/raises/preview", {"id": "1", "value": "2MB/s"})
    answer = operator.send_form("/raises/grant", {**fields(shown), "reason": "why not"})
    assert "Who asked can&#39;t answer" in answer.text
    assert value_of(console, PAIR) == QUOTA


def test_open_asks_of_a_tenant_are_bounded(console: Console) -> None:
    for _ in range(MOST_OPEN):
        asked(console)
    answer = console.client("tenant", "payments").send_form("/raises", ASK)
    assert answer.status_code == 422
    assert "wait for an answer" in answer.text
    console.client("operator").send_form("/raises/refuse", {"id": "1", "reason": "no"})
    asked(console)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"value": "-5"}, "more than 0"),
        ({"value": "inf"}, "a number"),
        ({"reason": " "}, "Give a reason"),
        ({"key": "connection_creation_rate"}, "isn&#39;t a quota of user"),
        ({"key": "producer_ids_rate", "value": "5"}, "isn&#39;t a quota of user+client-id"),
    ],
)
def test_an_ask_that_makes_no_sense_is_refused_at_once(
    console: Console, more: dict[str, str], said: str
) -> None:
    answer = console.client("tenant", "payments").send_form("/raises", ASK | more)
    assert answer.status_code == 422
    assert said in answer.text
