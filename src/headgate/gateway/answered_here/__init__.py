"""
What the gateway answers itself, in a broker's place.

- ``answers``: answers client quotas (48, 49), and passes other questions to the modules below.
- ``admin_listener``: how the admin listener handles its APIs, KIP-546's own calls among them.
- ``live``: answers what goes on now: administrators learn all, other users what concerns them.
- ``broker_settings``: answers about the broker settings that the gateway enforces (32, 33, 44).
- ``broker_alteration``: makes alterations of them: on both sides, or on neither.
- ``mutations``: charges topics created, deleted or grown; asks how many partitions they have.
- ``token_owners``: asks the cluster which user owns a delegation token.
- ``support``: what all of them need: the store, permission, refusals, slices of the loop.
- ``denials``: refuses the requests of users without permission, and says what they tried.
"""
