"""
kafka-configs: Kafka's tool, on any home of quotas.

- ``options``: its flags, and the checks before anything is done.
- ``values``: what stands in --add-config and --delete-config.
- ``kafka_configs``: the command; --alter.
- ``describe``: --describe.
- ``zookeeper``: what --zookeeper does: KIP-55's own rules.
- ``errors``: errors as Java prints them.
"""
