"""
The pipeline's commands: flags in, tables and closing tables out.

- ``print``: closing tables, and figures as people read them.
- ``places``: whether tables can be written, before anything starts.
- ``options``: the flags that all commands share, and the run they open.
- ``command``: runs one; what Spark and the disk say becomes a line.
- ``reading``: what commands share once Spark is up.
- ``stream``: runs on the inputs that are there, or on growing ones.
- ``usage``: `headgate usage`.
- ``requests``: `headgate requests`.
- ``replay``: `headgate replay`.
- ``what_if``: `headgate what-if`.
- ``recommend``: `headgate recommend`.
- ``answers``: `headgate chargeback`, `storms` and `effective`.
- ``splits``: `headgate splits`.
- ``report``: `headgate report`.
"""
