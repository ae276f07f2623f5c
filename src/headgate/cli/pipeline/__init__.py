"""
The pipeline's commands: flags in, tables and closing tables out.

- ``print``: closing tables, and figures as people read them.
- ``parsers``: the parser of each command that runs on Spark.
- ``flags``: the flags that several of them have.
- ``command``: imports and runs one; errors of Spark and of the disk become short messages.
- ``places``: whether tables can be written, before anything starts.
- ``opening``: checks the flags, starts Spark and opens a run.
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
