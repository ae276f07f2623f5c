"""
The control plane under the simulator: leases, store, snapshot, journal and splits of gateways.

- ``machines``: gateways on machines with disks, each with a line to the one home of quotas.
- ``supervisor``: divides cluster-wide quotas over workers.
- ``laws``: what must hold of quotas, leases, snapshots and splits.
- ``journals``: what must stand in the usage journals.
- ``story``: who does what when, drawn from a seed.
- ``life``: a story happens, and the laws are checked all the while.
- ``run``: many lives, or one told as its shortest story (`make simulate CONTROL=1`).
- ``planted``: faults put into the product on purpose, each with the seed that finds it.
"""
