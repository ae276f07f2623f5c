from headgate.store.hub import Hub


def test_an_event_queued_while_a_watch_begins_is_seen_once() -> None:
    hub: Hub[str] = Hub()
    seen: list[str] = []

    def first() -> tuple[int, str]:
        hub.push(7, "seven")  # a change that comes while the first call is being made ready
        return 7, "all up to seven"

    hub.add(seen.append, first)
    hub.push(8, "eight")
    hub.deliver()
    assert seen == ["all up to seven", "eight"]


def test_nothing_is_queued_for_nobody() -> None:
    hub: Hub[str] = Hub()
    hub.push(1, "one")
    seen: list[str] = []
    watch = hub.add(seen.append, lambda: (0, "begin"))
    hub.deliver()
    assert seen == ["begin"]
    watch.close()
    assert not hub._watches


def test_a_watch_whose_beginning_fails_is_none() -> None:
    hub: Hub[str] = Hub()

    def broken(_event: str) -> None:
        raise ValueError("no")

    try:
        hub.add(broken, lambda: (0, "begin"))
    except ValueError:
        failed = True
    assert failed
    assert not hub._watches
