"""Now, Tenant and Why as text; what a tenant reads of them; live updates and their bounds."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from starlette.exceptions import HTTPException

from headgate.console import events, rendering
from headgate.console.drawing import chart
from headgate.console.events import LiveQuery, Watches, live_part
from headgate.console.recent import POINTS, Point, Recent
from headgate.errors import StoreError
from headgate.live.picture import BrokerPicture, ClientUse, Picture, QuotaUse
from headgate.live.quota_ids import rows
from headgate.quota.key import PRODUCER
from kit.console import HOSTILE, Console, make_console, text_of

LONG = "x" * 32_000


def use(user: str, rate: float, held: int = 0, **more: Any) -> QuotaUse:
    return QuotaUse("producer_byte_rate", user, quota=100.0, rate=rate, held=held, **more)


# --- Now


def test_now_says_who_is_throttled_by_which_quota_how_hard_and_for_how_long(
    console: Console,
) -> None:
    text = text_of(console.client("viewer").get("/").text)
    throttled, _, others = text.partition("Room of everyone else")
    first = throttled.index("alice · app-0")
    assert first < throttled.index("any user · shared")
    assert "140 % 1.4 MB/s of 1 MB/s" in throttled
    assert "2 connections, the last for 900 ms for 1 min 0 s, since 07:59:00 UTC" in throttled
    room = [float(share) for share in re.findall(r"([\d.]+) % free", others)]
    assert room == sorted(room)
    assert "Connections 183" in text


def test_now_draws_few_rows_of_many_and_finds_the_others_by_name(tmp_path: Any) -> None:
    console = make_console(tmp_path, 400, 5)
    client = console.client("operator")
    page = client.get("/").text
    assert page.count('<tr><th scope="row">') == 8 + 1 + 25
    assert re.search(r"And 1.967 more that have more room", text_of(page))
    found = client.get("/?find=TENANT-0123").text
    assert found.count('<tr><th scope="row">') == 5
    assert "Nobody who is throttled matches" in found
    console.close()


def test_now_says_what_is_wrong_and_shows_what_was_seen_last(console: Console) -> None:
    client = console.client("viewer")
    with client:  # one event loop for both
        client.get("/")

        async def fails(_: object) -> Picture:
            raise StoreError("the gateway at 10.0.0.1 hangs up")

        console.live.live_beside = fails  # type: ignore[method-assign]
        console.app._app.state.watches.everybody._next = 0  # the period is over
        text = text_of(client.get("/").text)
    assert "the gateway at 10.0.0.1 hangs up What follows was seen at 2027-01-15" in text
    assert "alice · app-0" in text


def test_quota_ids_of_several_brokers_are_one_row_with_the_worst() -> None:
    clients = (ClientUse("a", "c", 2, 1, 5_000, (("10.0.0.1", 2),)),)
    picture = Picture(
        1_000,
        brokers=(
            BrokerPicture(1, quotas=(use("a", 50.0, clients=clients), use("b", 99.0))),
            BrokerPicture(2, quotas=(use("a", 80.0, 1, held_until_ms=5_000, clients=clients),)),
        ),
    )
    first, second = rows(picture)
    assert (first.use.user, first.broker_id, first.brokers, first.held) == ("a", 2, 2, 1)
    assert (first.held_until_ms, first.clients[0].connections) == (5_000, 4)
    assert first.clients[0].addresses == (("10.0.0.1", 4),)
    assert second.use.user == "b"


# --- Tenant and Why


def test_a_principals_page_has_its_use_its_quotas_and_its_history(console: Console) -> None:
    client = console.client("operator")
    page = client.get("/tenant?user=alice&client-id=app-0").text
    text = text_of(page)
    assert "alice/app-0 waits 900 ms more, because users/alice/clients/app-0 allows" in text
    assert "users/alice/clients/app-0 1 MB/s applies one budget for exactly that pair" in text
    assert "<del>1 MB/s</del>" in page
    assert page.count("not set</span>") == 6
    assert "app-0 3 2 10.0.0.0" in text
    assert "not set 1 MB/s kit" in text
    everything = text_of(client.get("/tenant?user=alice").text)
    assert "2 clients share this budget alice · shared 1 connections, 1 wait bob" in everything


def test_why_answers_in_a_sentence_and_a_picture(console: Console) -> None:
    client = console.client("viewer")
    assert 'name="user"' in client.get("/why").text
    text = text_of(client.get("/why?user=alice&client-id=app-0").text)
    assert "alice/app-0 waits 900 ms more" in text
    assert "What frees it It goes on in 900 ms" in text
    assert "Since when The quota-id has been throttled since 2027-01-15 07:59:00 UTC" in text
    assert "applies" in text
    blank = text_of(client.get("/why?user=alice&client-id=").text)
    assert "alice waits 900 ms more" in blank


def test_without_a_gateway_quotas_are_shown_all_the_same(console: Console) -> None:
    without = dataclasses.replace(console.parts, live=None)
    console.app._app.state.parts = without  # type: ignore[attr-defined]
    client = console.client("viewer")
    for path in ("/tenant?user=alice&client-id=app-0", "/why?user=alice&client-id=app-0"):
        text = text_of(client.get(path).text)
        assert "give the console a gateway's address" in text
        assert "users/alice/clients/app-0 1 MB/s applies" in text
    assert "give the console a gateway's address" in text_of(client.get("/").text)


# --- what a tenant may see


@pytest.mark.parametrize("path", ["/tenant", "/why"])
@pytest.mark.parametrize("accept", ["text/html", "text/event-stream", "application/json"])
def test_a_foreign_and_an_unknown_principal_are_answered_alike(
    console: Console, path: str, accept: str
) -> None:
    client = console.client("tenant", "payments")
    answers = [
        client.get(f"{path}?user={user}&client-id=app-0", headers={"accept": accept})
        for user in ("bob", "nobody", "tenant-0001", quote(HOSTILE))
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({(answer.text, str(answer.headers)) for answer in answers}) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/tenant",
        "/tenant?find=bob",
        "/tenant?user=alice",
        "/tenant?user=alice&client-id=shared",
        "/tenant?user=alice&client-id=app-1",
        "/why",
        "/why?user=alice",
        "/why?user=alice&client-id=shared",
    ],
)
def test_a_tenant_reads_nothing_of_others(console: Console, path: str) -> None:
    page = console.client("tenant", "payments").get(path)
    assert page.status_code == 200
    text = text_of(page.text).replace("find=bob", "").replace('value="bob"', "")
    for secret in ("bob", "gateway-1", "SASL_PLAINTEXT", "kit", "tenant-0001"):
        assert secret not in text, secret
    if "shared" in path:
        assert "up to 1.25 MB/s of 1 MB/s, with others" in text


def test_a_tenant_is_not_told_why_the_gateway_cannot_be_asked(console: Console) -> None:
    async def fails(_: object) -> Picture:
        raise StoreError("10.0.0.1:19092 hangs up on admin")

    console.live.live_beside = fails  # type: ignore[method-assign]
    for path in ("/tenant?user=alice", "/why?user=alice"):
        text = console.client("tenant", "payments").get(path).text
        assert "10.0.0.1" not in text
        assert "asked for at the moment" in text


@pytest.mark.parametrize("name", [HOSTILE, LONG, "a&b=c#d/..%00", "\ud800"])
def test_a_hostile_name_harms_nothing(console: Console, name: str) -> None:
    bad = use(name, 120.0, 1, held_until_ms=1, clients=(ClientUse(name, name, 1),))
    broker = replace(console.live.shown.brokers[0], quotas=(replace(bad, client_id=name),))
    console.live.shown = replace(console.live.shown, brokers=(broker,))
    client = console.client("operator")
    encoded = quote(name[:9_000], errors="surrogatepass")
    for path in (
        "/",
        "/tenant",
        f"/tenant?user={encoded}",
        f"/why?user={encoded}",
        f"/?find={encoded}",
    ):
        page = client.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "\u202e" not in re.sub(r'value="[^"]*"', "", page.text)
        assert len(page.content) < 200_000


# --- live updates


class _Parts:
    """Answers when it is told to, and counts."""

    live = None

    def __init__(self) -> None:
        self.asked = 0

    async def picture(self, user: str | None, client_id: str | None, most: int) -> Picture:
        self.asked += 1
        await asyncio.sleep(0)
        return Picture(self.asked, user=user, client_id=client_id)


def watches_of(here: _Parts) -> Watches:
    return Watches(here)  # type: ignore[arg-type]


async def test_a_hundred_watchers_ask_once() -> None:
    here = _Parts()
    watch = LiveQuery(here, (None, None))  # type: ignore[arg-type]
    moments = await asyncio.gather(*(watch.now() for _ in range(100)))
    assert here.asked == 1
    assert {moment.number for moment in moments} == {1}
    watch._next = 0  # the period is over
    await asyncio.gather(*(watch.after(1) for _ in range(100)))
    assert here.asked == 2


async def test_an_answer_that_fails_keeps_the_last_picture() -> None:
    here = _Parts()
    watch = LiveQuery(here, (None, None))  # type: ignore[arg-type]
    seen = await watch.now()

    async def fails(*_: object) -> Picture:
        raise StoreError("gone")

    here.picture = fails  # type: ignore[method-assign]
    watch._next = 0
    moment = await watch.now()
    assert (moment.picture, moment.problem) == (seen.picture, "gone")


async def test_places_to_watch_from_are_bounded_for_one_and_for_all() -> None:
    found = watches_of(_Parts())
    with found.place("a"):
        assert found._watchers.total() == 1
    assert found._watchers.total() == 0
    taken = [found.place("a") for _ in range(events.MOST_OF_ONE)]
    for place in taken:
        place.__enter__()
    with pytest.raises(HTTPException) as refused, found.place("a"):
        pass
    assert refused.value.status_code == 503
    with found.place("b"):
        pass
    for place in taken:
        place.__exit__(None, None, None)


async def stream(
    found: Watches, send: Callable[[Any], Awaitable[None]], gone: asyncio.Event
) -> None:
    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    answer = live_part(found, found.everybody, "a", lambda moment: f"<p>{moment.number}\n</p>")
    await answer({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)


async def test_a_reader_who_goes_or_is_slow_loses_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "SLOW_S", 0.05)
    found, gone = watches_of(_Parts()), asyncio.Event()
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if len(sent) == 3:
            gone.set()

    await asyncio.wait_for(stream(found, send, gone), 10)
    assert b'"<p>1\\n</p>"' in sent[2]
    assert found._watchers.total() == 0

    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    await asyncio.wait_for(stream(found, never, asyncio.Event()), 10)
    assert found._watchers.total() == 0


async def test_a_stream_ends_so_that_the_right_to_it_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "LIFE_S", 0.01)
    found = watches_of(_Parts())
    ended: list[bool] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0.02)
        ended.append(not message.get("more_body", True))

    await asyncio.wait_for(stream(found, send, asyncio.Event()), 10)
    assert ended[-1]


async def test_pictures_of_those_asked_about_long_ago_are_forgotten() -> None:
    found = watches_of(_Parts())
    first = found.of("u0", None)
    assert found.of("u0", None) is first
    for n in range(events.MOST_QUESTIONS + 1):
        found.of(f"u{n + 1}", None)
    assert found.of("u0", None) is not first


# --- use over time


def test_the_last_hour_is_kept_at_the_broker_with_least_room() -> None:
    recent = Recent()
    quota_id = ("producer_byte_rate", "a", "", "")
    for n in range(POINTS + 10):
        uses = (use("a", 10.0 + n, n % 2),) if n != 100 else ()
        brokers = (BrokerPicture(1, quotas=uses), BrokerPicture(2, quotas=(use("a", 5.0),)))
        recent.add(Picture(n * 10_000, brokers=brokers))
        recent.add(Picture(n * 10_000 + 500, brokers=brokers))  # too soon
    points = recent.of(quota_id)
    assert len(points) == POINTS
    assert points[0] == Point(100_000, 20.0, 100.0, 0)
    assert points[90] == Point(1_000_000, 5.0, 100.0, 0)
    assert points[-1] == Point((POINTS + 9) * 10_000, 10.0 + POINTS + 9, 100.0, 1)


@pytest.mark.parametrize("turned", [False, True])
def test_a_broker_that_limits_nobody_hides_none_that_does(turned: bool) -> None:
    recent = Recent()
    uses = (replace(use("a", 90.0), quota=None), use("a", 40.0))
    brokers = tuple(
        BrokerPicture(n, quotas=(one,)) for n, one in enumerate(reversed(uses) if turned else uses)
    )
    recent.add(Picture(10_000, brokers=brokers))
    assert recent.of(("producer_byte_rate", "a", "", "")) == [Point(10_000, 40.0, 100.0, 0)]


def test_of_brokers_without_a_limit_the_busiest_is_kept() -> None:
    recent = Recent()
    uses = [QuotaUse(PRODUCER.name, user="alice", rate=rate) for rate in (5e6, 0.0)]
    recent.add(
        Picture(1_000, brokers=tuple(BrokerPicture(n, quotas=(u,)) for n, u in enumerate(uses)))
    )
    assert [point.rate for point in recent.of((PRODUCER.name, "alice", "", ""))] == [5e6]


def test_who_waits_longest_comes_first_whatever_the_rates_of_this_moment() -> None:
    def held(user: str, rate: float, wait_ms: int) -> QuotaUse:
        return QuotaUse(
            PRODUCER.name, user=user, quota=1e6, rate=rate, held=1, held_until_ms=1_000 + wait_ms
        )

    uses = (held("short", 9e6, 5_000), held("long", 1e4, 600_000))
    found = rows(Picture(1_000, brokers=(BrokerPicture(1, quotas=uses),)))
    assert [row.use.user for row in found] == ["long", "short"]
    far = held("long", 9e6, 1_000)  # at another broker it is fuller, and waits for less
    both = Picture(1_000, brokers=(BrokerPicture(1, quotas=uses), BrokerPicture(2, quotas=(far,))))
    first = rows(both)[0]
    assert (first.use.user, first.broker_id) == ("long", 1)


def test_a_mistyped_name_is_answered_with_what_comes_near(console: Console) -> None:
    operator, tenant = console.client("operator"), console.client("tenant", "payments")
    said = "No user alcie is connected now, and no quota names one; did you mean alice?"
    for page in ("/why", "/tenant"):
        assert said in text_of(operator.get(f"{page}?user=alcie").text)
        assert "No user" not in text_of(operator.get(f"{page}?user=alice").text)
        refused, other = (tenant.get(f"{page}?user={name}") for name in ("alcie", "bob"))
        assert refused.status_code == other.status_code == 404 and refused.text == other.text
    misspelt = text_of(operator.get("/why?user=alice&client-id=app-00").text)
    assert "No client-id app-00 of alice is connected now" in misspelt
    form = {"user": "alcie", "key": PRODUCER.name, "value": "2MB/s"}
    shown = text_of(operator.send_form("/change/preview", form).text)
    assert f"users/alcie is new: it has no quota yet. {said}" in shown
    known = operator.send_form("/change/preview", {**form, "user": "alice"})
    assert "users/alice is new: it has no quota yet." in text_of(known.text)
    assert "did you mean" not in known.text


def test_titles_name_whom_a_page_is_about_in_plain_text(console: Console) -> None:
    client = console.client("operator")
    for path, title in (
        ("/why", "Why"),
        ("/why?user=alice", "Why: alice"),
        ("/why?user=alice&client-id=app-0", "Why: alice · app-0"),
        ("/tenant?user=alice&client-id=app-0", "alice · app-0"),
        ("/tenant?user=a%3Cb%26c", "a&lt;b&amp;c"),
    ):
        assert f"<title>{title} · Headgate</title>" in client.get(path).text


def test_a_principals_page_lists_the_quotas_of_its_pairs(console: Console) -> None:
    page = text_of(console.client("operator").get("/tenant?user=alice").text)
    assert "Quotas of its own client-ids alice · app-0 : produce, 1 MB/s" in page
    assert (
        "Quotas of its own"
        not in console.client("operator").get("/tenant?user=alice&client-id=app-0").text
    )


def test_why_without_a_client_id_says_whose_quota_it_is(console: Console) -> None:
    page = text_of(console.client("operator").get("/why?user=alice").text)
    assert "It is the quota of client-id app-0 of user alice" in page
    assert "ask about app-0" in page


def test_who_is_gone_for_an_hour_is_forgotten() -> None:
    recent = Recent()
    for n in range(2 * POINTS + 1):
        uses = (use("a" if n else "b", 1.0),)
        recent.add(Picture(n * 10_000, brokers=(BrokerPicture(1, quotas=uses),)))
    assert recent.of(("producer_byte_rate", "b", "", "")) == []
    assert len(recent._kept) == 1


def test_a_chart_has_gaps_its_limit_and_who_was_held() -> None:
    points = [
        Point(0, 50.0, 100.0, 0),
        Point(10_000, 100.0, 100.0, 2),
        Point(100_000, 25.0, 50.0, 0),
    ]
    drawn = chart(points)
    assert drawn is not None
    assert drawn.line.count("M") == 2  # 90 s without a point are a gap
    assert drawn.limit.startswith("M0.0,")
    assert len(drawn.held) == 1
    assert (drawn.peak, drawn.share) == (100.0, 1 / 3)
    assert chart(points[:1]) is None
    assert chart([Point(0, 0.0, None, 0), Point(10, 0.0, None, 0)]) is not None


def test_a_path_may_be_broken_after_a_slash_and_nowhere_else() -> None:
    found = rendering.path("users/a b/clients/<default>")
    assert found == "<bdi>users/<wbr>a b/<wbr>clients/<wbr>&lt;default&gt;</bdi>"
