"""
The same client for asyncio: one quota for each of many users, with a future each.

    python examples/admin_async.py sqlite:quotas.db
"""

import asyncio
import sys

from headgate.admin import AlterQuotasEntry, AsyncAdminClient, Op, QuotaEntity, QuotaKey

RATE = QuotaKey.parse("consumer_byte_rate")


async def main(store: str) -> None:
    async with AsyncAdminClient(store=store, who="example", tool="admin_async") as admin:
        users = [QuotaEntity.of(user=f"tenant-{number}") for number in range(100)]
        result = admin.alter_quotas([AlterQuotasEntry(user, [Op(RATE, 500_000)]) for user in users])
        failures = [
            (entity, error)
            for entity, future in result.values().items()
            if (error := (await asyncio.gather(future, return_exceptions=True))[0]) is not None
        ]
        print(f"{len(users) - len(failures)} tenants have a quota, {len(failures)} were refused")
        print(len(await admin.describe_quotas().entities()), "entities in all")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
