"""
Apply the quotas of one broker to live traffic: who is charged how much, and who waits.

No clock, socket or log is used here: time is an argument. In the order a request meets them:

- ``plans``: how each API and version is handled.
- ``clients``: a client's connection, why it waits, the client-id that it is charged as.
- ``contexts``: who is charged, one principal with one client-id; made again when quotas change.
- ``repaying``: newcomers that wait while another connection repays such a mute.
- ``lanes``: mutes left by closed connections, which new connections of the quota-id wait out.
- ``gates``: when a quota-id that owes too much may go on, and which connection is next.
- ``hold``: how a connection's request, or a fetch's answer, waits at the gates of its quota-ids.
- ``waiting``: those that wait; they look again when another quota applies, or none.
- ``limits``: what is charged under each quota key: the table to add one to.
- ``managers``: the manager of each of them.
- ``charges``: charges of request time, topics and fetches; which throttle counts.
- ``enforcement``: the charges of all kinds of requests; it holds the objects above.
- ``journal``: where every charge is noted; ``headgate.gateway.usage_journal`` has what writes it.
"""
