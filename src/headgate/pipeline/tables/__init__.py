"""
Write a run's tables, all of them or none.

- ``folders``: the folder they go to, here or on any file system that Spark knows.
- ``by_day``: tables divided by day, and how rows change them.
- ``worker_files``: files that Python workers write themselves, past Spark's JVM.
- ``publish``: tables swapped in all at once.
"""
