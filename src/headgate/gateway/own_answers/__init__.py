"""
What the gateway answers itself, in a broker's place.

- ``admin_plans``: how the admin listener handles its APIs.
- ``answers``: answers client quotas (48, 49), and passes the other questions to those below.
- ``draft_answers``: answers KIP-546's own calls on the admin listener.
- ``live``: answers what goes on now: administrators learn all, other users what concerns them.
- ``broker_settings``: answers about the broker settings that the gateway enforces (32, 33, 44).
- ``broker_alteration``: makes alterations of them: on both sides, or on neither.
- ``mutations``: charges topics created, deleted or grown.
- ``topics``: asks the cluster how many partitions topics have.
- ``token_owners``: asks the cluster which user owns a delegation token.
- ``denials``: refuses the requests of users without permission.
- ``attempts``: describes for the audit log what such users tried.
"""
