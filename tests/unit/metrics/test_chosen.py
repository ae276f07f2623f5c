"""However many quota-ids there are: so many series, counters that never fall, names that differ."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.metrics import BrokerView, Meters, Sample
from headgate.metrics.chosen import RANK_MS, Tags, choose
from headgate.metrics.expose import draw, page
from headgate.metrics.samples import MOST_NAME, rank_steps, sample_steps, shortened
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, QuotaType
from headgate.steps import finish
from headgate.throttle.manager import ClientQuotaManager
from kit.samples import read_samples

T0 = 1_795_262_069_485
KIND = QuotaType.PRODUCER_BYTE_RATE


def by_client_id() -> ClientQuotaManager:
    manager = ClientQuotaManager(KIND, start_ms=T0)
    manager.update_quota(QuotaEntity.of(client_id=DEFAULT), 1_000, T0)
    return manager


def view(manager: ClientQuotaManager, meters: Meters, most: int = 10) -> BrokerView:
    return BrokerView(1, {PRODUCER: manager}, meters, most=most)


def of(samples: list[Sample], name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {s.labels[1:]: s.value for s in samples if s.name == name}


def clients(samples: list[Sample]) -> set[str]:
    rates = (s for s in samples if s.name == "kafka_server_produce_byte_rate")
    return {dict(s.labels)["client_id"] for s in rates}


@pytest.mark.parametrize("count", [100, 3_000])
def test_there_are_so_many_series_and_no_more_of_the_busiest_and_the_rest_is_a_sum(
    count: int,
) -> None:
    manager, meters = by_client_id(), Meters()
    for n in range(count):
        manager.record("u", f"c{n}", 10 * n, T0)
    samples = read_samples(view(manager, meters), T0)
    assert clients(samples) == {f"c{n}" for n in range(count - 10, count)}
    few = read_samples(view(by_client_id(), Meters()), T0)
    assert len(samples) - len(few) <= 10 * 5 + 3
    ids = of(samples, "headgate_quota_ids")
    kind = ("quota_type", "producer_byte_rate")
    assert ids[kind, ("series", "own")] == 10
    assert ids[kind, ("series", "others")] == count - 10
    [rest] = of(samples, "headgate_others_rate").values()
    assert rest == pytest.approx(sum(10 * n for n in range(count - 10)) / 10)


def test_all_have_series_at_once_where_they_fit() -> None:
    manager, meters = by_client_id(), Meters()
    for n in range(10):
        manager.record("u", f"c{n}", 10, T0)
        assert clients(read_samples(view(manager, meters), T0)) == {f"c{m}" for m in range(n + 1)}


def test_half_of_the_places_are_for_those_that_a_quota_names() -> None:
    manager, meters = by_client_id(), Meters()
    for n in range(8):
        manager.update_quota(QuotaEntity.of(client_id=f"tenant{n}"), 1e9, T0)
        manager.record("u", f"tenant{n}", n, T0)
    for n in range(500):
        manager.record("u", f"invented{n}", 100_000, T0)
    found = clients(read_samples(view(manager, meters), T0))
    assert {name for name in found if "tenant" in name} == {f"tenant{n}" for n in range(3, 8)}
    assert len(found) == 10


def test_who_is_throttled_goes_first_then_who_is_near_the_quota_then_who_is_busy() -> None:
    candidates = [
        (("", "busy"), (False, 0.1, 1e9), False),
        (("", "near"), (False, 0.9, 1.0), False),
        (("", "throttled"), (True, 0.0, 0.0), False),
        (("", "idle"), (False, 0.0, 0.0), False),
    ]
    for places, names in ((2, {"throttled", "near"}), (3, {"throttled", "near", "busy"})):
        assert {tags[1] for tags in finish(choose(candidates, places, ()))} == names


def test_whoever_has_a_place_keeps_it_until_he_is_clearly_less_busy() -> None:
    def ranked(order: list[str]) -> list[tuple[Tags, tuple[bool, float, float], bool]]:
        last = len(order)
        return [(("", name), (False, 0.0, float(last - n)), False) for n, name in enumerate(order)]

    names = [f"{n}" for n in range(40)]
    first = finish(choose(ranked(names), 20, ()))
    assert {tags[1] for tags in first} == set(names[:20])
    # The last one and the next change places again and again: the series don't.
    swapped = [*names[:19], names[20], names[19], *names[21:]]
    assert finish(choose(ranked(swapped), 20, first)) == first
    # A quota-id that is suddenly the busiest gets a place at once, in place of the least busy.
    top = [names[30], *names[:30], *names[31:]]
    assert finish(choose(ranked(top), 20, first)) == first - {("", "19")} | {("", "30")}
    # Behind a quarter more than there are places the place is lost.
    behind = [*names[:10], *names[20:36], *names[10:20], *names[36:]]
    kept = finish(choose(ranked(behind), 20, first))
    assert {("", name) for name in names[:10]} <= kept
    assert ("", "19") not in kept


def test_counters_never_fall_and_their_sum_is_what_was_told() -> None:
    rng = random.Random(11)
    manager, meters = by_client_id(), Meters()
    told = told_ms = 0
    seen: Counter[tuple[tuple[str, str], ...]] = Counter()
    shown_before: set[tuple[tuple[str, str], ...]] = set()
    now = T0
    entered = left = 0
    for _ in range(400):
        now += rng.choice((500, 3_000, RANK_MS))
        for _ in range(rng.randrange(12)):
            name = f"c{min(int(rng.expovariate(0.1)), 60)}"
            manager.record("u", name, rng.randrange(50_000), now)
            ms = rng.randrange(1, 900)
            meters.throttle(KIND, "", name, ms, now)
            told, told_ms = told + 1, told_ms + ms
        if rng.random() < 0.03:  # it was idle for an hour
            name = f"c{rng.randrange(60)}"
            manager._sensors.pop(("", name), None)
            manager._charged.clear()
            meters.forget(KIND, "", name)
        samples = read_samples(view(manager, meters, 12), now)
        counts, sums = (of(samples, f"headgate_{n}_total") for n in ("throttled", "throttle_ms"))
        assert sum(counts.values()) == told
        assert sum(sums.values()) == told_ms
        assert all(value >= 0 for value in (*counts.values(), *sums.values()))
        for labels in shown_before & counts.keys():
            assert counts[labels] >= seen[labels], labels
        entered += len(counts.keys() - shown_before)
        left += len(shown_before - counts.keys())
        seen, shown_before = Counter(counts), set(counts)
        others = [labels for labels in counts if ("others", "true") in labels]
        assert len(others) <= 1
        assert len(counts) <= 12 + 1
    assert entered > 20 < left


def test_a_scrape_ranks_nobody_and_shows_who_was_chosen_before() -> None:
    """To rank 50,000 quota-ids takes a second: the scrape would take as long."""
    manager, meters = by_client_id(), Meters()
    for n in range(400):
        manager.record("u", f"c{n}", 1 + n, T0)
    shown = view(manager, meters, 10)
    assert sum(step is None for step in sample_steps(shown, lambda: T0)) >= 400, "the first ranks"
    first = meters.chosen[KIND].shown
    assert len(first) == 10
    for n in range(10):
        manager.record("u", f"c{n}", 10**6, T0 + 1)
    later = T0 + RANK_MS + 1
    assert sum(step is None for step in sample_steps(shown, lambda: later)) < 100
    assert meters.chosen[KIND].shown == first
    assert sum(1 for _ in rank_steps(shown, lambda: later)) >= 400
    assert meters.chosen[KIND].shown == first, "series change from one drawing to the next only"
    for _ in sample_steps(shown, lambda: later):
        pass
    assert {("", f"c{n}") for n in range(10)} & meters.chosen[KIND].shown != set()
    assert meters.chosen[KIND].shown != first
    assert not list(rank_steps(shown, lambda: later + 1)), "at most every ten seconds"


def test_two_names_never_become_one_however_long_they_are() -> None:
    long = "x" * 32_000
    names = {long + "a", long + "b", long, "x" * MOST_NAME, "x" * (MOST_NAME + 1), "short"}
    # A client named like another's shortened name isn't taken for it.
    names |= {shortened(name) for name in names if len(name) > MOST_NAME}
    cut = {shortened(name) for name in names}
    assert len(cut) == len(names)
    assert max(map(len, cut)) <= MOST_NAME + 33
    assert shortened("short") == "short"


def test_a_thousand_names_of_32_kb_are_a_short_scrape() -> None:
    manager, meters = by_client_id(), Meters()
    for n in range(1_000):
        name = f"{n:04}" * 8_000
        manager.record("u", name, 10_000, T0)
        meters.throttle(KIND, "", name, 5, T0)
    drawn = page([finish(draw(sample_steps(view(manager, meters, 1_000), lambda: T0)))])
    series = [s for f in text_string_to_metric_families(drawn.decode()) for s in f.samples]
    assert len([s for s in series if s.name == "kafka_server_produce_byte_rate"]) == 1_000
    assert len(drawn) < 500 * len(series)


def test_many_quota_ids_are_read_in_small_steps_and_sensors_may_come_and_go_meanwhile() -> None:
    manager, meters = by_client_id(), Meters()
    for n in range(3_000):
        manager.record("u", f"c{n}", n, T0)
    drawing = draw(sample_steps(view(manager, meters), lambda: T0))
    steps = 0
    for step in drawing:
        steps += 1
        if steps % 500 == 0:
            manager.record("u", f"new{steps}", 1, T0)
            manager._sensors.pop(("", f"c{steps}"), None)
        assert step is None
    assert steps > 3_000  # none of them reads more than one sensor, or writes more than one line


def test_no_step_frees_what_all_quota_ids_together_took() -> None:
    """A step that let go of 50,000 at once took 8 to 11 ms."""
    manager, meters = by_client_id(), Meters()
    for n in range(20_000):
        manager.record("u", f"c{n}", n, T0)
        meters.throttle(KIND, "", f"c{n}", 5, T0)
    # To count blocks Python looks at each of its pools, so fifty steps are counted together. They
    # take a few blocks each.
    before, freed = sys.getallocatedblocks(), 0
    for steps, _ in enumerate(draw(sample_steps(view(manager, meters), lambda: T0))):
        if steps % 50 == 0:
            now = sys.getallocatedblocks()
            freed, before = max(freed, before - now), now
    assert steps > 20_000
    assert freed < 2_000


def test_a_scrape_of_one_names_values_as_prometheus_reads_them() -> None:
    odd = 'a"b\\c\nd é \u2028{},='
    manager, meters = by_client_id(), Meters()
    manager.record("u", odd, 12_345_678_901, T0)
    text = page([finish(draw(read_samples(view(manager, meters), T0)))]).decode()
    assert clients(
        [
            Sample(s.name, (("broker", "1"), *s.labels.items()), s.value)
            for family in text_string_to_metric_families(text)
            for s in family.samples
        ]
    ) == {odd}
