"""
The simulator itself tried: faults planted in the product, each of which a law must find.

The quick test begins at a seed that found the fault once. The slow one begins at 0; a thousand
seeds are the most.
"""

from __future__ import annotations

import pytest

from simulation.plants import PLANTS, Plant
from simulation.run import live_all

QUICK = 25
MOST = 1_000
FOUND_AT: dict[str, int] = {
    "debt_forgotten_on_reconnect": 1,
    "newcomer_served_although_it_owes": 1,
    "lane_shared_by_two": 5,
    "debt_not_rescaled": 28,
    "fetch_gate_stays_open": 6,
    "fetch_gate_opens_early": 17,
    "long_polls_pass_a_closed_gate": 6,
    "share_fetches_pass_a_closed_gate": 17,
    "late_acks_taken_for_all": 2,
    "early_requests_charged_late": 44,
    "headroom_waits_on_a_silent_peer": 7,
    "half_sent_request_reserves": 1,
    "answer_swallowed_at_a_hang_up": 77,
    "acknowledgement_invented": 130,
    "held_answer_charged_by_its_deadline": 297,
    "charge_made_twice": 3,
    "charge_lost_at_hang_up": 2,
    "cut_request_uncharged": 2,
    "answers_out_of_order": 4,
    "buffer_without_bound": 2,
    "mute_begins_when_the_answer_has_come": 19,
    "reload_closes_connections_over_tls": 7,
    "reload_keeps_the_certificate": 7,
    "broken_key_store_put_in_force": 18,
    "failed_handshake_keeps_its_slot": 18,
    "charge_lost_at_a_hang_up_over_tls": 7,
    "way_to_the_broker_stays_open_over_tls": 7,
}
"""A seed that finds each fault; 0 for the rest."""
IDS = [plant.__name__ for plant, _ in PLANTS]


def found_after(plant: Plant, laws: frozenset[str], seeds: range) -> int:
    """Return how many seeds it took until one of these laws was broken; 0: none was."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for lives, outcome in enumerate(live_all(seeds), 1):
            if outcome.broken[0]:
                assert outcome.broken[0] in laws, outcome.broken
                return lives
    return 0


@pytest.mark.parametrize(("plant", "laws"), PLANTS, ids=IDS)
def test_a_planted_fault_is_found(plant: Plant, laws: frozenset[str]) -> None:
    first = FOUND_AT.get(plant.__name__, 0)
    # Lives over TLS aren't the same on every Python: what isn't found there is looked for.
    quick, all_seeds = range(first, first + QUICK), range(MOST)
    assert found_after(plant, laws, quick) or found_after(plant, laws, all_seeds)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "laws"), PLANTS, ids=IDS)
def test_a_planted_fault_is_found_within_a_thousand_seeds(
    plant: Plant, laws: frozenset[str]
) -> None:
    assert found_after(plant, laws, range(MOST))
