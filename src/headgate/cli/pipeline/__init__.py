"""
The pipeline's commands: flags in, tables and closing tables out.

- ``print``: closing tables, and figures as people read them.
- ``places``: whether tables can be written, before anything starts.
- ``options``: the flags that all commands share, and the run they open.
- ``command``: runs one; errors of Spark and of the disk become short messages.
- ``reading``: reads and packs a run's inputs, and prints what couldn't be read.
- ``stream``: runs once, or follows inputs that grow.
- ``usage``: `headgate usage`.
- ``requests``: `headgate requests`.
- ``replay``: `headgate replay`.
- ``what_if``: `headgate what-if`.
- ``demand``: what `--closed-loop` adds to it.
- ``recommend``: `headgate recommend`.
- ``answers``: `headgate chargeback`, `storms` and `effective`.
- ``bill``: what `--bill` adds to `headgate chargeback`.
- ``splits``: `headgate splits`.
- ``report``: `headgate report`.
"""
