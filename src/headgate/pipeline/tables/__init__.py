"""
Write a run's tables, all of them or none.

- ``folders``: the folder they go to, here or on any file system that Spark knows.
- ``by_day``: tables divided by day, and how rows change them.
- ``publish``: tables swapped in all at once.
"""
