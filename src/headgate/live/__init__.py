"""
What goes on now: who is held by which quota, how much room others have, and why.

Pure: no socket, no clock. A gateway makes a picture of each broker, or a journal's events make one
of a time that is over; the rest reads pictures.

- ``picture``: what a broker's quotas, clients and connections are like at one moment.
- ``effective``: what applies to a principal and client-id by a quota table.
- ``why``: why a client waits, or what room it has, in words.
- ``past``: a picture of a time that is over, from the events of usage journals.
- ``seen``: what a tenant may see of a picture.
"""
