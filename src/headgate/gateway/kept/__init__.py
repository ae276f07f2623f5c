"""
The store that a gateway uses, and the copy on disk for times when the store doesn't answer.

- ``current``: settings and quotas in force now.
- ``limits``: connection limits from the file and the store; static default quotas from the file.
- ``guard``: whether the store that is found is the one whose quotas were in force.
- ``snapshot``: the last known quotas on disk.
- ``store``: the store let in, watched, and kept on disk.
"""
