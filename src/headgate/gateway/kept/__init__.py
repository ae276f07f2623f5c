"""
The store that a gateway uses, and the copy that is kept for times when it can't be asked.

- ``current``: settings and quotas in force now.
- ``limits``: limits of connections and static defaults of quotas, from the file and the store.
- ``guard``: whether the store that is found is the one whose quotas were in force.
- ``snapshot``: the last known quotas on disk.
- ``store``: the store let in, watched, and kept on disk.
"""
