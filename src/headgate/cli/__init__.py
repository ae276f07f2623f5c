"""
The commands: `headgate …`, `kafka-configs`, `kafka-quotas`.

- ``main``: the table of `headgate` commands; imports only the one that runs.
- ``environment``: environment variables that stand for the flags that say where quotas are.
- ``extras``: the message of a command that misses the package of an extra.
- ``exit_codes``: what each exit status means.
- ``results``: what `--json` prints, a class per kind of result.
- ``contract``: every command's parser, its one JSON object, its exit status.
- ``completion``: what a shell completes, made from the commands' parsers.
- ``output``: prints text safely on terminals, and works on if nobody reads the output.
- ``joptsimple``: reads a command line as Kafka's Java tools do.
- ``connecting``: from flags and a file of properties to an admin client.
- ``console``: the web page.
- ``why``: why a client waits, or waited.
- ``watching``: asks again and again, and tells what changes.
- ``monitoring``: dashboards and alerts.
- ``quotas``: a package: `kafka-quotas`, and quotas as code.
- ``kafka_configs``: a package: Kafka's own tool.
- ``serve``: a package: the gateway as a process.
- ``top``: a package: who waits and who uses most, live.
- ``doctor``: a package: looks for what is wrong with quotas or a set-up.
- ``pipeline``: a package: the commands that run on Spark.
"""
