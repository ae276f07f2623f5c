"""
Commands about quotas: `kafka-quotas`; `headgate` export, plan, apply, quotas, history, undo,
store.

- ``flags``: flags that several of these commands have.
- ``quota_target``: the store or servers that flags name.
- ``quota_output``: entities, values and effective quotas as text and JSON.
- ``plan_output``: a plan for people and for programs.
- ``plan_file``: a plan kept as a file, to be applied later.
- ``as_code``: plan and apply.
- ``elsewhere``: export, and import from other tools.
- ``undo``: takes changes back, by a plan.
- ``quotas``: lists every quota with its use and its last change.
- ``history``: lists who changed what.
- ``store``: shows, accepts and copies stores.
- ``kafka_quotas``: KIP-546's tool.
"""
