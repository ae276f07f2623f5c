"""
Describe, describe effective, alter: KIP-546 from Python.

    python examples/admin_basics.py localhost:9092
    python examples/admin_basics.py sqlite:quotas.db
"""

import sys

from headgate.admin import (
    DEFAULT,
    AdminClient,
    AlterQuotasEntry,
    AlterQuotasOptions,
    Op,
    QuotaEntity,
    QuotaFilter,
    QuotaKey,
)
from headgate.errors import ApiError

RATE = QuotaKey(QuotaKey.Type.PRODUCER_BYTE_RATE, QuotaKey.Units.BROKER_BPS)


def main(place: str) -> None:
    is_store = place.startswith(("sqlite:", "zookeeper:", "kafka:"))
    with AdminClient(store=place, create=True) if is_store else AdminClient(place) as admin:
        # 1 MB/s for each user by default, 10 MB/s for alice, 4 MB/s for her etl job.
        wanted = {
            QuotaEntity({"user": DEFAULT}): 1_000_000,
            QuotaEntity({"user": "alice"}): 10_000_000,
            QuotaEntity({"user": "alice", "client-id": "etl"}): 4_000_000,
        }
        entries = [AlterQuotasEntry(entity, [Op(RATE, value)]) for entity, value in wanted.items()]
        admin.alter_quotas(entries, AlterQuotasOptions(validate_only=True)).all().result()
        for entity, future in admin.alter_quotas(entries).values().items():
            future.result()
            print("set", entity)

        named = [QuotaFilter("user", QuotaFilter.Rule.PREFIX, "al")]
        for entity, values in admin.describe_quotas(named).entities().result().items():
            print(entity, {str(key): value for key, value in values.items()})

        client = QuotaEntity({"user": "alice", "client-id": "etl"})
        effective = admin.describe_effective_quotas([client]).config()[client].result()
        for key, value in effective.items():
            print(f"{key}: {value.entry.value:g} from {value.entry.source}")
            for entry in value.overridden_entries or ():
                print(f"  hides {entry.value:g} from {entry.source}")

        try:
            admin.alter_quotas([AlterQuotasEntry(client, [Op(RATE, 0)])]).all().result()
        except ApiError as refused:
            print(f"refused: {refused.name}: {refused}")

        removals = [AlterQuotasEntry(entity, [Op(RATE, None)]) for entity in wanted]
        admin.alter_quotas(removals).all().result()


if __name__ == "__main__":
    main(sys.argv[1])
