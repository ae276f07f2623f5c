"""
Replay past charges through Kafka's quota arithmetic.

A worker packs the charges of a piece: a *bundle* is one row that holds the charges to a *group* of
sensors (one quota type, one broker, one share of the quota-ids). Spark brings the bundles of each
group together, and a second pass replays them.

- ``packed_format``: the table of bundles, and the options of packing.
- ``arrays``: NumPy views of Arrow columns.
- ``charges``: which requests a sensor was fed with, and what the log says it decided.
- ``roots``: what a charge is packed under, where plans disagree on its sensor.
- ``charge_index``: the sensors that each distinct charge goes to.
- ``packed_rows``: packs gathered charges into bundles.
- ``packer``: what a worker runs to pack: charges in, bundles out.
- ``events``: bundles read back into arrays.
- ``sensor_group``: a group's events in order, and its kernel.
- ``shares_group``: the same for shares of a broker's capacity.
- ``decisions``: every request handed back with its decision.
- ``sums``: decisions added up by plan, sensor and client.
- ``replay``: the Spark frames: packing, bringing together, replaying.
"""
