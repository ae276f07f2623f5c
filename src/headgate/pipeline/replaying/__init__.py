"""
Replay past charges through Kafka's quota arithmetic.

A worker packs the charges of a piece: a *bundle* is one row that holds the charges to a *group* of
sensors (one quota type, one broker, one share of the quota-ids). Spark brings the bundles of each
group together, and a second pass replays them.

- ``packed_format``: the table of bundles, the options of packing, and bundles read back as arrays.
- ``charges``: which rows are charges to a sensor, what is done to it, and how much.
- ``charge_index``: the sensors that each distinct charge goes to.
- ``packer``: what a worker runs to pack: charges in, bundles out.
- ``sensor_group``: a group's events in order, and its kernel, or its manager of shares.
- ``replay``: every request handed back with its decision, or the decisions added up.

The Spark frames between these (packing, bringing together, replaying) are those of
``answers.replay``: it is the entrance.

Where an event belongs is said by these words, and no others:

- *key*: of a group. Spark's shuffle brings all bundles with one key to one task.
- *bundle*: one row, the events of some of a group's sensors from one piece of a file.
- *root*: what an event is packed under in its bundle: its sensor, or, where plans disagree on the
  sensor, what the sensors of all plans have in common.
- *layer*: which of its root's sensors an event feeds: the root itself, its user, client-id or pair.
- *head*: one principal and client-id under one root; each event says its head.
- *terms*: a head's limits and layers, by plan.
- *rank*: of a piece, the order of its first event (*since*) and a hash of its file (*tie*): it
  decides between events of the same moment.
"""
