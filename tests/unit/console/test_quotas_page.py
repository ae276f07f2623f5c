"""The page of everything that is configured, its files, and what each role sees of it."""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace as changed

from headgate.admin.listing import QuotaRow
from headgate.console.pages import quotas as page_module
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import parse_quotas
from headgate.quota.key import CONNECTION, CONSUMER, PRODUCER, REQUEST
from headgate.words import NONE
from kit.console import HOSTILE, QUOTA, Browser, Console, rows_of, text_of

ALICE = QuotaEntity.of(user="alice", client_id="app-0")
CAROL = QuotaEntity.of(user="carol")
ADDRESS = QuotaEntity.of(ip="10.0.0.9")


def first(page: str) -> str:
    return rows_of(page)[0]


@pytest.fixture
def operator(console: Console) -> Browser:
    console.store.alter(
        [
            QuotaAlteration(CAROL, (Op(PRODUCER, 5e6), Op(REQUEST, 50.0))),
            QuotaAlteration(ADDRESS, (Op(CONNECTION, 7.0),)),
        ],
        who="ada", tool="kafka-quotas", message="ticket 17",
    )  # fmt: skip
    return console.client("operator")


def test_a_row_has_value_use_waits_matches_and_its_last_change(operator: Browser) -> None:
    row = first(operator.get("/quotas?find=alice&sort=waits").text)
    assert row.startswith("alice · app-0 produce 1 MB/s 140 % 1.4 MB/s of 1 MB/s 2 connections")
    assert "the last for 900 ms 1 " in row
    carol, by_time = rows_of(operator.get("/quotas?find=carol").text)
    assert carol.startswith(f"carol produce 5 MB/s none {NONE} matched nobody")
    assert "ada ticket 17" in carol and "request time 50 %" in by_time
    address = first(operator.get("/quotas?kind=ip").text)
    assert address.startswith(f"ip 10.0.0.9 connections 7/s none {NONE} matched nobody")
    default = first(operator.get("/quotas?kind=default").text)
    assert default.startswith(f"any other user produce 1 MB/s none {NONE} matched nobody")


def test_rows_are_found_chosen_and_sorted_by_the_address_alone(operator: Browser) -> None:
    everything = operator.get("/quotas").text
    assert "1 to 50 of 65 quotas" in text_of(everything)
    assert len(rows_of(everything)) == 50
    assert len(rows_of(operator.get("/quotas?page=2").text)) == 15
    assert rows_of(operator.get("/quotas?page=999").text) == rows_of(
        operator.get("/quotas?page=2").text
    )
    for odd in ("page=0", "page=-1", "page=x", f"page={'9' * 500}", "sort=nonsense&kind=*&only=1"):
        assert operator.get(f"/quotas?{odd}").status_code == 200
    assert len(rows_of(operator.get("/quotas?find=TICKET+17").text)) == 3  # why it was changed
    assert len(rows_of(operator.get("/quotas?find=ada").text)) == 3
    assert len(rows_of(operator.get("/quotas?key=request_percentage").text)) == 1
    assert len(rows_of(operator.get("/quotas?only=unmatched").text)) == 4
    throttled = rows_of(operator.get("/quotas?only=throttled").text)
    assert [row.split(" produce")[0] for row in throttled] == ["alice · app-0", "client-id shared"]
    dearest = operator.get("/quotas?sort=value").text
    assert first(dearest).startswith("carol produce 5 MB/s")
    cheapest = operator.get("/quotas?sort=value&turned=yes").text
    assert first(cheapest).startswith("ip 10.0.0.9 connections 7/s")
    assert first(operator.get("/quotas?sort=changed").text).split()[0] in ("carol", "ip")
    assert first(operator.get("/quotas?sort=use").text).startswith("alice · app-0")
    # A heading sorts, and turns what is sorted; what was found stays found.
    link = re.search(r'aria-sort="descending"><a href="([^"]*)">Value', dearest)
    assert link and link[1] == "/quotas?sort=value&amp;turned=yes"
    assert 'aria-sort="ascending"><a href="/quotas?sort=value"' in cheapest
    assert 'href="/quotas?find=carol&amp;sort=value"' in operator.get("/quotas?find=carol").text


def test_what_a_row_offers_leads_to_the_filled_form(operator: Browser, console: Console) -> None:
    page = operator.get("/quotas?find=alice&sort=waits").text
    links = re.findall(r'href="(/change[^"]*)"', page.partition("<tbody>")[2].split("</tr>")[0])
    change, double, half, undo = (link.replace("&amp;", "&") for link in links)
    path = quote(ALICE.path, safe="")
    assert double == f"/change?entity={path}&key=producer_byte_rate&value=2000000"
    assert half.endswith("value=500000") and change.endswith("value=1000000")
    form = operator.get(double).text
    assert 'value="2000000"' in form and f'name="entity" value="{ALICE.path}"' in form
    assert console.store.history.entries(entity=ALICE)[-1].change in undo
    assert "before you confirm" in operator.get(undo).text


@pytest.mark.parametrize(
    ("value", "double", "half"),
    [(1.0, 2.0, None), (5.0, 10.0, 2.0), (9223372036854775807.0, None, 2.0**62)],
)
def test_double_and_half_are_values_that_the_key_holds(
    value: float, double: float | None, half: float | None
) -> None:
    row = QuotaRow(CAROL, PRODUCER, value, None, None)
    assert (row.double, row.half) == (double, half)
    share = QuotaRow(CAROL, REQUEST, 0.5, None, None)
    assert (share.double, share.half) == (1.0, 0.25)


def test_the_files_hold_what_was_found(operator: Browser, console: Console) -> None:
    answer = operator.get("/quotas/file?as=yaml")
    assert answer.headers["content-disposition"] == 'attachment; filename="quotas.yaml"'
    assert parse_quotas(answer.text).table == console.store.snapshot()
    some = parse_quotas(operator.get("/quotas/file?as=yaml&find=carol").text).table
    assert some.entities == {CAROL: {PRODUCER: 5e6, REQUEST: 50.0}}
    text = operator.get("/quotas/file?as=csv&find=carol&key=producer_byte_rate").text
    header, row = csv.reader(io.StringIO(text))
    told = dict(zip(header, row, strict=True))
    assert told.pop("changed").startswith("20")
    assert told == {
        "entity": "users/carol", "key": "producer_byte_rate", "value": "5000000", "unit": "B/s",
        "use": "", "limit": "", "waiting": "0", "quota_ids": "0", "who": "ada",
        "tool": "kafka-quotas", "why": "ticket 17", "until": "", "then": "",
    }  # fmt: skip


def test_no_cell_of_the_csv_is_a_formula(console: Console) -> None:
    change = QuotaAlteration(QuotaEntity.of(user="=1+1"), (Op(CONSUMER, 1.0),))
    console.store.alter([change], who="@x", tool="-y", message='=cmd|" /C calc"!A0')
    text = console.client("operator").get("/quotas/file?as=csv&key=consumer_byte_rate").text
    _, row = csv.reader(io.StringIO(text))
    assert not [cell for cell in row if cell.startswith(("=", "+", "-", "@"))]


def test_a_tenant_sees_its_own_quotas_and_may_ask_for_more(
    console: Console, operator: Browser
) -> None:
    tenant = console.client("tenant", "payments")
    page = tenant.get("/quotas").text
    told = rows_of(page)
    assert {row.split(" · ")[0] for row in told} == {"alice", "tenant-0000"}
    assert "kit" not in page and "/change" not in page and "1 to 6 of 6 quotas" in text_of(page)
    ask = re.search(r'href="(/raises[^"]*)"><?[^<]*<?', page.partition("<tbody>")[2])
    assert ask
    form = tenant.get(ask[1].replace("&amp;", "&")).text
    assert '<option value="alice" selected' in form and 'value="2000000"' in form
    yaml = parse_quotas(tenant.get("/quotas/file?as=yaml").text).table
    assert {entity.user for entity in yaml.entities} == {"alice", "tenant-0000"}
    assert "kit" not in tenant.get("/quotas/file?as=csv").text
    assert rows_of(tenant.get("/quotas?find=kit").text) == []
    viewer = console.client("viewer").get("/quotas").text
    assert "/change" not in viewer and "kit" in viewer


def test_what_is_not_known_is_said(console: Console, operator: Browser) -> None:
    brokers = tuple(changed(b, other_quotas=3) for b in console.live.shown.brokers)
    console.live.shown = changed(console.live.shown, brokers=brokers)
    page = text_of(operator.get("/quotas?find=carol").text)
    assert page.count("nobody seen") == 2
    assert "3 quota-ids with the most room aren't in this picture" in page
    by_name = QuotaAlteration(QuotaEntity.of(ip="localhost"), (Op(CONNECTION, 3.0),))
    console.store.alter([by_name])
    row = first(operator.get("/quotas?kind=ip&find=localhost").text)
    assert row.startswith("ip localhost connections 3/s not known not known not known")


def test_a_hostile_name_harms_nothing(operator: Browser) -> None:
    for path in ("/quotas?find=script", f"/quotas?find={quote(HOSTILE)}"):
        page = operator.get(path)
        assert page.status_code == 200 and "<script>alert" not in page.text


def test_a_page_has_fifty_rows_and_reads_the_history_once(
    console: Console, operator: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    made: list[int] = []
    kind = type(console.store.history)
    before, listing = kind.entries, page_module.Listing

    def history(self: Any, **more: Any) -> Any:
        read.append(more)
        return before(self, **more)

    def listed(*arguments: Any) -> Any:
        found = listing(*arguments)
        made.append(len(found.at(None)))
        return found

    monkeypatch.setattr(kind, "entries", history)
    monkeypatch.setattr(page_module, "Listing", listed)
    with operator:  # one event loop, on which the picture is fresh for a second
        for path in ("/quotas", "/quotas?page=2", "/quotas?sort=use", "/quotas?find=alice"):
            assert len(rows_of(operator.get(path).text)) <= 50
        assert len(read) == 1 and made == [0, 65]
        console.store.alter([QuotaAlteration(CAROL, (Op(PRODUCER, 6e6),))], who="bea")
        assert "bea" in first(operator.get("/quotas?find=carol").text)
        assert read[1:] == [{"entity": None, "limit": page_module._FEW}]  # only what is new
        many = [
            QuotaAlteration(QuotaEntity.of(user=f"u{n}"), (Op(PRODUCER, 1.0),))
            for n in range(page_module._FEW + 1)
        ]
        console.store.alter(many, who="eve")
        assert "eve" in first(operator.get("/quotas?find=u200").text)
        assert read[3:] == [{"entity": None, "limit": None}]


def test_default_pairs_are_told_from_named_ones(console: Console) -> None:
    pair = QuotaEntity.of(user="alice", client_id=DEFAULT)
    console.store.alter([QuotaAlteration(pair, (Op(CONSUMER, QUOTA),))])
    row = first(console.client("operator").get("/quotas?key=consumer_byte_rate").text)
    assert row.startswith("alice , any other client-id fetch 1 MB/s")


def test_a_quota_that_ends_says_when_and_what_returns(operator: Browser, console: Console) -> None:
    asked = {"entity": ALICE.path, "key": PRODUCER.name, "value": "2MB/s"}
    for wrong, said in (
        ("friday", "until friday: write a time in UTC"), ("2000-01-01", "that has passed"),
        ("9" * 40, "write a time in UTC"),
    ):  # fmt: skip
        answer = operator.send_form("/change/preview", {**asked, "until": wrong})
        assert answer.status_code == 422 and said in text_of(answer.text)
        assert f'name="until" value="{wrong}"' in answer.text
    shown = operator.send_form("/change/preview", {**asked, "until": "2100-01-01 10:00"}).text
    assert "It ends at 2100-01-01 10:00:00 UTC: then the value returns" in text_of(shown)
    state = re.search(r'name="state" value="([^"]*)"', shown)
    until = re.search(r'name="until" value="([^"]*)"', shown)
    assert state and until
    form = {**asked, "value": "2000000", "until": until[1], "state": state[1], "reason": "fair"}
    assert operator.send_form("/change/apply", form).status_code == 303
    [end] = console.store.ends.kept()
    assert (end.value, end.former, end.until_ms) == (2e6, QUOTA, int(until[1]))
    row = first(operator.get("/quotas?find=alice&sort=waits").text)
    assert "2 MB/s until 2100-01-01 10:00:00 UTC, then 1 MB/s" in row
    text = operator.get("/quotas/file?as=csv&find=alice&sort=waits").text
    told = next(csv.DictReader(io.StringIO(text)))
    assert (told["until"], told["then"]) == ("2100-01-01 10:00:00 UTC", "1000000")
    page = console.client("tenant", "payments").get("/quotas").text
    assert "until 2100-01-01 10:00:00 UTC, then 1 MB/s" in text_of(page)
    form_page = operator.get(f"/change?entity={quote(ALICE.path)}").text
    assert "2 MB/s , until 2100-01-01 10:00:00 UTC, then 1 MB/s" in text_of(form_page)
    # The same value with another end is a change too.
    again = {**asked, "until": "2100-02-01"}
    shown = operator.send_form("/change/preview", again).text
    state = re.search(r'name="state" value="([^"]*)"', shown)
    assert state
    again.update(value="2000000", state=state[1], reason="longer")
    assert operator.send_form("/change/apply", again).status_code == 303
    [later] = console.store.ends.kept()
    assert (later.value, later.former, later.message) == (2e6, QUOTA, "longer")
    assert "until 2100-02-01 00:00:00 UTC" in text_of(operator.get("/quotas?find=alice").text)
