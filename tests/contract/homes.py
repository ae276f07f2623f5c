"""What the contract of quota stores needs: names, moments, and a home of the store under test."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    QuotaKey,
)
from headgate.quota.table import QuotaTable
from headgate.store import QuotaStore


class Opener(Protocol):
    """Opens one more store on the test's home."""

    def __call__(self, *, create: bool = True) -> QuotaStore: ...


ALICE = QuotaEntity.of(user="alice")
BOB = QuotaEntity.of(user="bob")
ENTITIES = [
    ALICE,
    QuotaEntity.of(user=DEFAULT),
    QuotaEntity.of(user="<default>"),
    QuotaEntity.of(user="CN=a b,O=*"),
    QuotaEntity.of(user="ürsüla/π"),
    QuotaEntity.of(client_id="cl/ient:1 *+%é"),
    QuotaEntity.of(client_id=DEFAULT),
    QuotaEntity.of(client_id="clients"),
    QuotaEntity.of(user="alice", client_id="etl"),
    QuotaEntity.of(user="alice", client_id=DEFAULT),
    QuotaEntity.of(user=DEFAULT, client_id="etl"),
    QuotaEntity.of(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity.of(user="CN=a b,O=*", client_id="<default>"),
]


def alteration(entity: QuotaEntity, **keys: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, tuple(Op(QuotaKey.parse(k), v) for k, v in keys.items()))


def set_key(entity: QuotaEntity, key: QuotaKey, value: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, (Op(key, value),))


def errors(results: Any) -> list[str | None]:
    return [None if r.error is None else r.error.message for r in results]


class Seen:
    """What a watch was told; waits for a condition, and fails loudly after a long while."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.changed = threading.Condition()

    def __call__(self, *event: Any) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), f"never came; seen: {self.events}"

    @property
    def table(self) -> QuotaTable:
        table = self.events[-1][0]
        assert isinstance(table, QuotaTable)
        return table


class Died(BaseException):
    """Ends a call as a kill of its process does: nothing in the store may catch it to go on."""


class Moments:
    """Has something happen once amid a call: between two of the steps that the call consists of."""

    def __init__(self) -> None:
        self._left = -1
        self._what: Callable[[], object] = lambda: None

    def at(self, number: int, what: Callable[[], object]) -> None:
        """Have something happen before the step of this number, from 0."""
        self._left, self._what = number, what

    def passed(self) -> None:
        """Tell that a step comes."""
        left, self._left = self._left, self._left - 1
        if left == 0:
            self._what()

    def happened(self) -> bool:
        """Whether the call came that far; nothing happens from now on."""
        happened, self._left = self._left < 0, -1
        return happened


def called(
    monkeypatch: pytest.MonkeyPatch, passed: Callable[[], None], owner: Any, *names: str
) -> None:
    """Tell before each call of these functions of a class or module."""

    def telling(inner: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any, **more: Any) -> Any:
            passed()
            return inner(*args, **more)

        return told

    for name in names:
        monkeypatch.setattr(owner, name, telling(getattr(owner, name)))


class Homed:
    """A test's own empty home; subclasses give ``open_home``: opens one more store on it."""

    #: Whether a watch looks again and again, and how many looks after a change show it at most.
    polls = False
    most_looks = 2
    #: Of how many steps a read or a change consists at least: else nothing can come amid it.
    fewest_steps = 3

    @pytest.fixture
    def open_home(self) -> Iterator[Opener]:
        raise NotImplementedError

    @pytest.fixture
    def empty_home(self) -> Callable[[], None]:
        """Take everything away from this test's home past any store."""
        raise NotImplementedError

    @pytest.fixture
    def reading(self) -> Moments:
        """The moments of a call that reads."""
        raise NotImplementedError

    @pytest.fixture
    def changing(self) -> Moments:
        """The moments of a change in which another process may make one too."""
        raise NotImplementedError

    @pytest.fixture
    def dying(self) -> Moments:
        """The moments of a change in which its process may die."""
        raise NotImplementedError

    def impatient(self, store: QuotaStore) -> QuotaStore:
        """Have a store take another process for dead that is in the middle of a change."""
        return store

    @pytest.fixture
    def store(self, open_home: Opener) -> QuotaStore:
        return open_home()
