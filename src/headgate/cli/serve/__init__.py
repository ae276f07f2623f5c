"""
`headgate serve`: the gateway as a process, or as one process per broker.

- ``serve``: the command: settings, store, upstream, signals.
- ``announcer``: says when the gateway begins to serve, and where.
- ``console``: the console beside the gateway.
- ``exit_limit``: how long the process may take to end.
- ``supervisor``: a process per broker, started again when it ends or hangs.
"""
