"""
The store that a gateway uses, and the copy on disk for times when the store doesn't answer.

- ``in_force``: settings and quotas in force now, and the limits that follow from them.
- ``guard``: whether the store that is found is the one whose quotas were in force; the last known
  quotas on disk.
- ``link``: the store let in, watched, and kept on disk.
"""
