"""
Write a run's tables, all of them or none.

- ``folders``: the folder they go to, here or on any file system that Spark knows.
- ``by_day``: tables divided by day, and how rows change them.
- ``pointer``: which folders the tables of a directory consist of; for all that read them.
- ``runs``: a run's folder, and the pointer that is replaced when it is whole.
- ``lake``: tables of Delta and Iceberg, by Spark's own writers.
"""
