"""
Where a broker setting's value comes from, and where else it could come from: Kafka's synonyms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.store.base import BrokerConfigs
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting

DYNAMIC_BROKER: Final = "DYNAMIC_BROKER_CONFIG"
DYNAMIC_DEFAULT: Final = "DYNAMIC_DEFAULT_BROKER_CONFIG"
STATIC: Final = "STATIC_BROKER_CONFIG"
BUILT_IN: Final = "DEFAULT_CONFIG"


class Synonym(NamedTuple):
    """One place that a value could come from."""

    source: str
    name: str
    value: str


def broker_synonyms(
    broker: str, dynamic: BrokerConfigs, static: Mapping[str, str] | None = None
) -> dict[str, tuple[Synonym, ...]]:
    """
    Return each setting of a broker with the places that give it a value, the one in force first.

    Args:
        broker: its id as text; "" for the cluster's dynamic defaults, and nothing else.
        dynamic: the store's settings by broker; "" is the cluster's default.
        static: what a settings file gives; then settings that only have a built-in default are
            returned too. None: there is no file, and only settings that the store has are returned.

    Source: DynamicBrokerConfig.brokerConfigSynonyms and ConfigHelper.configSynonyms in Apache
        Kafka: place by place, and in each a listener's own setting before the broker's.
    """
    places = [(DYNAMIC_DEFAULT, dynamic.get("", {}))]
    if broker:
        places.insert(0, (DYNAMIC_BROKER, dynamic.get(broker, {})))
        places += [(STATIC, static or {}), (BUILT_IN, BROKER_SETTINGS)]
    shown = places if static is not None else [p for p in places if p[0] != BUILT_IN]
    names = sorted({name for _, values in shown for name in values})
    return {
        name: tuple(
            Synonym(source, spelling, values[spelling])
            for source, values in places
            for spelling in dict.fromkeys((name, base_setting(name)))
            if spelling in values
        )
        for name in names
    }
