"""
Quotas in files of other tools: each is read as a quotas file is, and written from a table.

- ``nodes``: nodes of YAML, looked up and made; the rows of a quotas file that is read.
- ``values``: the quotas of a table that another tool's file can hold.
- ``kafka_text``: what kafka-configs and kafka-quotas print.
- ``strimzi``: KafkaUser and Kafka resources.
- ``jikkou``: KafkaClientQuota resources.
- ``resources``: files of such resources.
- ``lists``: lists of rpk, kafka-helmsman, Ansible, Julie and Kafbat.
- ``confluent``: client quotas of Confluent Cloud.
- ``hcl``: the language of Terraform's files.
- ``terraform``: resources in Terraform's files and states.
- ``known``: the table of formats.
"""
