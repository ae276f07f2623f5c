"""
SCRAM credentials of users, over Kafka's APIs 50 and 51.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from headgate.admin.api import ScramUpsertion
from headgate.client.connection import Connection, raise_error
from headgate.client.nodes import Nodes
from headgate.errors import ApiError
from headgate.quota.alteration import AlterResult
from headgate.wire.apis import ALTER_SCRAM, DESCRIBE_SCRAM
from headgate.wire.messages import scram as s
from headgate.wire.scram import salted_password

_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_MECHANISM_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}
_RESOURCE_NOT_FOUND: Final = 91
_UNACCEPTABLE_CREDENTIAL: Final = 93


async def describe_scram(
    nodes: Nodes, users: Sequence[str]
) -> dict[str, list[tuple[str, int]] | ApiError]:
    """Return users' SCRAM mechanisms and iterations; users without any are left out."""
    request = s.DescribeScramRequest(tuple(map(s.UserName, users)) or None)
    answer: s.DescribeScramResponse = await (await nodes.any()).call(
        DESCRIBE_SCRAM,
        (0, 0),
        request,
    )
    raise_error(answer.error_code, answer.error_message)
    found: dict[str, list[tuple[str, int]] | ApiError] = {}
    for user in answer.results:
        if user.error_code == _RESOURCE_NOT_FOUND:
            continue
        if user.error_code:
            found[user.user] = ApiError(user.error_code, user.error_message)
        else:
            found[user.user] = [
                (_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations)
                for info in sorted(user.credential_infos, key=lambda info: info.mechanism)
            ]
    return found


async def alter_scram(
    nodes: Nodes,
    user: str,
    upsertions: Sequence[ScramUpsertion],
    deletions: Sequence[str],
) -> None:
    """
    Set and remove a user's SCRAM credentials.

    Raises:
        ApiError: the broker's refusal; or a password is empty, which Java's client refuses too.
    """
    if not all(upsertion.password for upsertion in upsertions):
        raise ApiError(_UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
    request = s.AlterScramRequest(
        tuple(s.ScramDeletion(user, _MECHANISM_NUMBERS[name]) for name in deletions),
        tuple([await asyncio.to_thread(_salted, user, upsert) for upsert in upsertions]),
    )

    async def action(connection: Connection) -> list[AlterResult]:
        answer: s.AlterScramResponse = await connection.call(
            ALTER_SCRAM,
            (0, 0),
            request,
        )
        for result in answer.results:
            raise_error(result.error_code, result.error_message)
        return []

    await nodes.controlling(action)


def _salted(user: str, upsertion: ScramUpsertion) -> s.ScramUpsert:
    """Salt and hash a password, as Java's admin client does before it sends one."""
    salt = secrets.token_bytes(24)
    salted = salted_password(upsertion.mechanism, upsertion.password, salt, upsertion.iterations)
    number = _MECHANISM_NUMBERS[upsertion.mechanism]
    return s.ScramUpsert(user, number, upsertion.iterations, salt, salted)
