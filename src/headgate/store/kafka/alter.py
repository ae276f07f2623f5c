"""
Alterations in the Kafka store, one at a time over all processes, so that history and values agree.

Kafka orders changes of quotas, and the topic orders the history. No transaction covers both. So a
process that changes Kafka's own quotas first takes the turn: a record of the topic that says what
is about to change. Then it changes Kafka. Then it commits the history and gives the turn back. If
it dies in between, the turn stays. The next process finds out whether the change was made, writes
it into the history in the dead process's name, and continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.client.quota_calls import RETRIABLE
from headgate.client.quota_messages import Values, cut, entity_of
from headgate.errors import ApiError, KafkaError, StoreError, StoreSilent
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent
from headgate.quota.table import QuotaTable
from headgate.store.base import FOREIGN, ChangeOrigin, KeyChange
from headgate.store.deadline import NOTHING, UNSURE, left_s
from headgate.store.home import log
from headgate.store.identity import check_revision
from headgate.store.kafka.client import CALL_TIMEOUT_S
from headgate.store.kafka.codec import by_entity
from headgate.store.kafka.home import KafkaHome
from headgate.store.kafka.state import (
    TURN_S,
    At,
    PendingChange,
    Record,
    TopicState,
    history_record,
    new_id,
    quota_record,
    turn_record,
)
from headgate.store.kafka.topic import Decide
from headgate.wire.messages.quotas import AlteredEntry

#: How long a change waits for a broker to show what the controller acknowledged: it takes
#: milliseconds.
IMAGE_TIMEOUT_S: Final = 10.0
#: How long, before a change, Kafka's values may differ from the history's. If they still do after
#: that, they were changed without Headgate.
SETTLE_S: Final = 1.0
#: What a change leaves of its time for giving the turn back, where Kafka didn't make it in time.
GIVE_UP_S: Final = 3.0
#: Up to this many entities are looked up one by one after an alteration; more, all at once.
FEW: Final = 16

MADE: Final = (
    "Kafka has made the change; the history has it once the next change is made, or has it already"
)


@dataclass
class _Held:
    """
    The turn that one call of ``alter`` has, and since when, by the monotonic clock.

    ``became`` says what became of the change, should Kafka or the topic stop answering.
    """

    turn: PendingChange
    since: float = 0.0
    became: str = NOTHING


@dataclass(eq=False)
class KafkaAlterer:
    """
    Changes quotas in Kafka and in the topic.

    Args:
        home: the cluster and its topic.
        turn_s: a turn that isn't renewed for so long is a dead process's, and is settled; seconds.
    """

    home: KafkaHome
    turn_s: float = TURN_S

    def alter(
        self,
        in_kafka: Sequence[QuotaAlteration],
        in_topic: Sequence[QuotaAlteration],
        known: QuotaTable,
        origin: ChangeOrigin,
        at_revision: int | None,
    ) -> dict[QuotaEntity, ApiError]:
        """
        Make the changes in Kafka and in the topic.

        Args:
            in_kafka: of keys that Kafka knows.
            in_topic: of the others.
            known: the quotas as they were last seen.
            origin: for the history.
            at_revision: the revision that the change is based on; None: any.

        Returns:
            The errors of the controller, by entity.

        Raises:
            StoreMovedOn: the revision is another one.
            StoreError: Kafka or the topic can't be reached.
        """
        if not in_kafka:
            self._alter_topic(in_topic, origin, at_revision)
            return {}
        turn = _Held(PendingChange.of(new_id(), self.home.clock_ms(), origin, in_kafka, known))
        try:
            return self._alter_kafka(turn, in_kafka, in_topic, origin, at_revision)
        except StoreSilent as exc:
            raise StoreSilent(exc.silence, turn.became) from exc

    def _alter_kafka(
        self,
        turn: _Held,
        in_kafka: Sequence[QuotaAlteration],
        in_topic: Sequence[QuotaAlteration],
        origin: ChangeOrigin,
        at_revision: int | None,
    ) -> dict[QuotaEntity, ApiError]:
        """Make the changes in our turn; return the errors of the controller."""
        self._take_turn(turn, at_revision)
        try:
            values, foreign = self._settled(in_kafka)
            todo = [a for a in (_changing(a, values) for a in in_kafka) if a.ops]
            turn.became = UNSURE
            errors = self.send(todo, validate_only=False, ready=lambda: self._keep_turn(turn))
            turn.became = MADE
            done = [a for a in todo if a.entity not in errors]
            self._await_image(done)
        except StoreError:
            self._give_up(turn.turn)
            raise
        noticed, stamp = (self.home.clock_ms(), FOREIGN), (self.home.clock_ms(), origin)
        told = [history_record(new_id(), noticed, entity, [change]) for entity, change in foreign]
        for entity, ops in done:
            changes = [KeyChange(key, values.get((entity, key)), value) for key, value in ops]
            told.append(history_record(new_id(), stamp, entity, changes))
        overtaken = False

        def decide(state: TopicState) -> list[Record]:
            nonlocal overtaken
            overtaken = not state.has_turn(turn.turn.id)
            if overtaken:
                return []
            return [*_topic_changes(state, in_topic, stamp, told), turn_record(None)]

        self.home.write_change(decide)
        if overtaken and (told or in_topic):
            raise self._overtaken()
        return errors

    def _alter_topic(
        self, in_topic: Sequence[QuotaAlteration], origin: ChangeOrigin, at_revision: int | None
    ) -> None:
        """Change quotas that the topic keeps."""
        stamp = (self.home.clock_ms(), origin)
        became = NOTHING

        def decide(state: TopicState) -> list[Record]:
            nonlocal became
            records = _topic_changes(state, in_topic, stamp)
            if records:
                check_revision(self.home.url, at_revision, state.identity)
                became = UNSURE
            return records

        try:
            self.between_turns(decide)
        except StoreSilent as exc:
            raise StoreSilent(exc.silence, became) from exc

    # --- turns

    def between_turns(self, decide: Decide) -> None:
        """
        Commit to the topic while nobody is changing Kafka's quotas.

        So nothing changes between the moment when the process with the turn decides and its commit.
        What a dead process left is settled first.

        Args:
            decide: as :meth:`QuotaTopic.write` takes it.
        """
        seen, since = "", 0.0
        while True:
            with self.home.topic.read() as state:
                held = state.turn
            now = time.monotonic()
            if held is not None and held.id != seen:
                seen, since = held.id, now
            if held is not None and now - since < self.turn_s:
                if not left_s(self.turn_s):
                    raise StoreError(
                        f"{self.home.url}: another process is in the middle of a change, by "
                        f"{held.origin.who or 'somebody'}. {NOTHING}; try again",
                        retriable=True,
                    )
                self.home.topic.wait_for_turn(seen, left_s(self.turn_s - (now - since)))
                continue
            if held is not None:
                self._settle(held)
                continue
            done = False

            def free(state: TopicState) -> list[Record]:
                nonlocal done
                done = state.turn is None  # else another process took the turn first
                return decide(state) if done else []

            self.home.write_change(free)
            if done:
                return

    def _settle(self, dead: PendingChange) -> None:
        """Record what the process with the turn changed, and give the turn back for it."""
        left = self._left_by(dead)

        def decide(state: TopicState) -> list[Record]:
            return [*left, turn_record(None)] if state.has_turn(dead.id) else []

        self.home.write_change(decide)

    def _take_turn(self, mine: _Held, at_revision: int | None) -> None:
        """Wait until nobody else is changing Kafka's quotas, and take the turn."""

        def decide(state: TopicState) -> list[Record]:
            check_revision(self.home.url, at_revision, state.identity)
            mine.since = time.monotonic()
            return [turn_record(mine.turn)]

        self.between_turns(decide)

    def _keep_turn(self, mine: _Held) -> None:
        """
        Renew our turn after a while, so that no other process takes us for dead.

        Raises:
            StoreError: one did.
        """
        if time.monotonic() - mine.since < self.turn_s / 4:
            return
        before, mine.turn = mine.turn.id, mine.turn._replace(id=new_id())
        mine.since = time.monotonic()

        def decide(state: TopicState) -> list[Record]:
            if not state.has_turn(before):
                raise self._overtaken()
            return [turn_record(mine.turn)]

        self.home.write_change(decide)

    def _overtaken(self) -> StoreError:
        return StoreError(
            f"{self.home.url}: the change took so long that another process went on without it; "
            "the history tells whether it was made",
            retriable=True,
        )

    def _left_by(self, dead: PendingChange) -> list[Record]:
        """Return history records of the changes that a process made before it died."""
        if not dead.ops:
            return []
        log.warning("%s: a change by %s was cut short; its history is written now",
                    self.home.url, dead.origin.who or "somebody")  # fmt: skip
        entities = list(dict.fromkeys(at[0] for at in dead.ops))
        found = self._look_up(entities)
        with self.home.topic.locked() as state:
            last = {at: state.last.get(at, before) for at, (before, _) in dead.ops.items()}
        return [
            history_record(new_id(), (dead.t_ms, dead.origin), at[0], [(at[1], last[at], after)])
            for at, (_before, after) in dead.ops.items()
            if found.get(at[0], {}).get(at[1]) == after != last[at]
        ]

    def _give_up(self, turn: PendingChange) -> None:
        """Give the turn back after a failure; if that fails too, the next process settles it."""
        try:
            self._settle(turn)
        except StoreError as exc:
            log.warning(
                "%s: a change was cut short and couldn't be settled: %s", self.home.url, exc
            )

    # --- Kafka's own quotas

    def _settled(
        self, alterations: Sequence[QuotaAlteration]
    ) -> tuple[dict[At, float | None], list[tuple[QuotaEntity, KeyChange]]]:
        """
        Return Kafka's values, once they are the history's or ``SETTLE_S`` is over.

        Returns:
            The values, and the changes among them that the history doesn't record.
        """
        deadline = time.monotonic() + SETTLE_S
        while True:
            found = self._look_up([a.entity for a in alterations])
            values = {
                (a.entity, op.key): found.get(a.entity, {}).get(op.key)
                for a in alterations
                for op in a.ops
            }
            with self.home.topic.locked() as state:
                foreign = [
                    (at[0], KeyChange(at[1], state.last[at], value))
                    for at, value in values.items()
                    if state.last.get(at, value) != value
                ]
            if not foreign or time.monotonic() > deadline:
                return values, foreign
            time.sleep(0.01)

    def send(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
        ready: Callable[[], None] = lambda: None,
    ) -> dict[QuotaEntity, ApiError]:
        """
        Send alterations, at most 10,000 records at a time; return errors by entity.

        Args:
            alterations: of keys that Kafka knows.
            validate_only: check, and change nothing.
            ready: called before each try; it may raise.
        """
        errors: dict[QuotaEntity, ApiError] = {}
        for part in cut(alterations):
            for entry in self._answered(part, validate_only, ready):
                if entry.error_code in RETRIABLE:
                    said = entry.error_message or KafkaError(entry.error_code).name
                    raise StoreError(f"{self.home.url}: {said}", retriable=True)
                if entry.error_code:
                    error = ApiError(entry.error_code, entry.error_message)
                    errors[entity_of(entry.entity)] = error
        return errors

    def _answered(
        self, part: Sequence[QuotaAlteration], validate_only: bool, ready: Callable[[], None]
    ) -> Sequence[AlteredEntry]:
        """Return Kafka's answer; each try ends before the turn could be lost."""
        deadline = time.monotonic() + left_s(CALL_TIMEOUT_S) - GIVE_UP_S
        while True:
            ready()
            within_s = min(self.turn_s / 2, max(0.1, deadline - time.monotonic()))
            try:
                return self.home.client.alter(part, validate_only=validate_only, within_s=within_s)
            except StoreError as exc:
                if not exc.retriable or time.monotonic() > deadline:
                    raise

    def _await_image(self, alterations: Sequence[QuotaAlteration]) -> None:
        """Wait until the broker we ask shows what the controller acknowledged."""
        # Half of what is left: the history is still to be written.
        deadline = time.monotonic() + min(IMAGE_TIMEOUT_S, left_s(CALL_TIMEOUT_S) / 2)
        left = list(alterations)
        pause = 0.002
        while left:
            found = self._look_up([a.entity for a in left])
            left = [a for a in left if any(found.get(a.entity, {}).get(k) != v for k, v in a.ops)]
            if left and time.monotonic() > deadline:
                log.warning(
                    "%s: a broker doesn't show what the controller acknowledged for %s",
                    self.home.url,
                    left[0].entity,
                )
                return
            if left:
                time.sleep(pause)
                pause = min(0.1, pause * 2)

    def _look_up(self, entities: Sequence[QuotaEntity]) -> dict[QuotaEntity, Values]:
        if len(entities) > FEW:
            return by_entity(self.home.client.describe())
        found: dict[QuotaEntity, Values] = {}
        for entity in entities:
            components = [FilterComponent.of_name(kind, name) for kind, name in entity]
            found.update(by_entity(self.home.client.describe(components, strict=True)))
        return found


def _changing(alteration: QuotaAlteration, values: Mapping[At, float | None]) -> QuotaAlteration:
    """Return an alteration without the ops that change nothing."""
    entity = alteration.entity
    ops = tuple(op for op in alteration.ops if values.get((entity, op.key)) != op.value)
    return alteration._replace(ops=ops)


def _topic_changes(
    state: TopicState,
    alterations: Sequence[QuotaAlteration],
    stamp: tuple[int, ChangeOrigin],
    told: Sequence[Record] = (),
) -> list[Record]:
    """Return the records that change quotas of the topic, and the history: ``told`` and theirs."""
    records: list[Record] = []
    history = list(told)
    for entity, ops in alterations:
        now = state.quotas.get(entity, {})
        changes = [KeyChange(k, now.get(k), v) for k, v in ops if now.get(k) != v]
        records += [quota_record(entity, key, value) for key, _, value in changes]
        if changes:
            history.append(history_record(new_id(), stamp, entity, changes))
    return [*records, *history, *state.trimmed(len(history), 0)] if history else []
