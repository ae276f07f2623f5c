"""
What goes on now: who is throttled by which quota, how much room others have, and why.

Pure: no socket, no clock. A *picture* is the state of a broker's quotas and clients at one moment.
A gateway makes pictures of now; a journal's events give one of a past moment. The other modules
read pictures.

- ``picture``: what a broker's quotas, clients and connections are like at one moment.
- ``effective``: what applies to a principal and client-id by a quota table.
- ``why``: why a client waits, or what room it has, in words.
- ``saying``: the words of its sentences.
- ``past``: a picture of a past moment, from the events of usage journals.
- ``quota_ids``: the quota-ids of a picture over all brokers; those that wait come first.
- ``known``: whether a name is in use, and which names come near.
- ``seen``: what a tenant may see of a picture.
"""
