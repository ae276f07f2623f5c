"""
The commands: `headgate …`, `kafka-configs`, `kafka-quotas`.

``main`` is the table of `headgate` subcommands and imports only the one that runs.
``joptsimple`` reads a command line as Kafka's Java tools do; ``kafka_configs*`` and
``kafka_quotas*`` are the two tools; ``quotas_as_code`` is export, plan, apply and history;
``output`` and ``exit_codes`` are how all of them speak.
"""
