"""
The folder that a run's tables go to: on this machine, or any file system that Spark knows.
"""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ConfigError
from headgate.pipeline.tables.pointer import UNFINISHED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_path(place: str) -> str | None:
    """
    Return the path of a place on this machine, also of ``file:///PATH``; None: it is elsewhere.

    As Hadoop has it, each character of the URI stands for itself: ``%20`` is no blank.
    """
    scheme, _, rest = place.partition(":")
    if scheme == "file" and rest.startswith("/"):
        host, slash, path = rest.removeprefix("//").partition("/")
        if not rest.startswith("//"):
            return rest
        return f"{slash}{path}" if host in ("", "localhost") else None
    return None if "://" in place else place


class LocalFolder:
    """
    A folder on this machine.

    Args:
        root: its path.
    """

    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())

    def _at(self, name: str) -> Path:
        return Path(self.root) / name

    def names(self, inside: str = "") -> list[str]:
        """Return what is in it, or in a folder inside."""
        place = self._at(inside)
        return sorted(p.name for p in place.iterdir()) if place.is_dir() else []

    def exists(self, name: str) -> bool:
        """Say whether there is anything of a name."""
        return os.path.lexists(self._at(name))

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a folder and what is in it."""
        place = self._at(name)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all."""
        place = self._at(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        begun = place.with_name(f".{place.name}.{uuid.uuid4().hex}.begun")
        with begun.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        begun.replace(place)

    def read(self, name: str) -> bytes:
        """Return a small file."""
        return self._at(name).read_bytes()

    def held(self, name: str) -> bool:
        """Say whether a process that lives holds a folder."""
        try:
            with _locked(self._at(name), fcntl.LOCK_EX | fcntl.LOCK_NB):
                return False
        except BlockingIOError:
            return True

    def hold(self, name: str) -> Any:
        """
        Make a folder that is marked as unfinished.

        Returns:
            what holds it until it is closed, or the process ends.
        """
        place, held = self._at(name), ExitStack()
        Path(self.root).mkdir(parents=True, exist_ok=True)
        with self.alone():
            place.mkdir()
            (place / UNFINISHED).touch()
            held.enter_context(_locked(place, fcntl.LOCK_EX))
        return held

    def alone(self) -> Any:
        """Return a context that one process at a time can be in."""
        return _locked(Path(self.root), fcntl.LOCK_EX)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def _advice(root: str, version: str) -> str:
    """Return what to do where a file system can't be opened."""
    scheme = root.partition("://")[0]
    jars = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}.get(scheme)
    if jars:
        return (
            f"give Spark its jars (--spark-conf spark.jars.packages=org.apache.hadoop:{jars}:"
            f"{version}) and credentials as Hadoop takes them"
        )
    if scheme == "hdfs":
        return "write hdfs://HOST:PORT/PATH, or set HADOOP_CONF_DIR to the cluster's configuration"
    return "give a directory, file://, hdfs:// or s3a://"


# Stores of objects that show a file when it is closed, and know no rename.
_PUTS: Final = ("s3a", "gs", "oss", "cosn", "obs")


class HadoopFolder:
    """
    A folder on another file system that Spark's JVM knows: ``hdfs://``, ``s3a://`` …

    Nothing tells there whether a process lives, so what a killed run left stays until it is
    removed by hand.

    Args:
        spark: the session.
        root: its URI.

    Raises:
        ConfigError: Spark doesn't know the file system, or can't reach it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        conf = spark._jsc.hadoopConfiguration()
        try:
            self._system = self._at("").getFileSystem(conf)
            self._system.exists(self._at(""))  # the first that goes there
        except Py4JJavaError as exc:
            why = exc.java_exception.toString().partition(": ")[2] or str(exc.java_exception)
            version = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
            raise ConfigError(f"--out {root}: {why}; {_advice(root, version)}") from exc

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}".rstrip("/"))

    def names(self, inside: str = "") -> list[str]:
        """Return what is in it, or in a folder inside."""
        place = self._at(inside)
        if not self._system.exists(place):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(place))

    def exists(self, name: str) -> bool:
        """Say whether there is a file or a folder of a name."""
        return bool(self._system.exists(self._at(name)))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and what is in it."""
        self._system.delete(self._at(name), True)

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all: by one PUT, or by a rename that replaces it."""
        decoded = self._jvm.java.util.Base64.getDecoder().decode(base64.b64encode(data).decode())
        puts = self.root.partition("://")[0] in _PUTS
        begun = self._at(name if puts else f"{name}.{uuid.uuid4().hex}.begun")
        stream = self._system.create(begun, True)
        stream.write(decoded)
        stream.close()
        if puts:
            return
        hadoop = self._jvm.org.apache.hadoop.fs
        options = self._gateway.new_array(hadoop.Options.Rename, 1)
        options[0] = hadoop.Options.Rename.OVERWRITE
        files = hadoop.FileContext.getFileContext(begun.toUri(), self._system.getConf())
        files.rename(begun, self._at(name), options)

    def read(self, name: str) -> bytes:
        """Return a small file."""
        stream = self._system.open(self._at(name))
        data = bytes(stream.readAllBytes())
        stream.close()
        return data

    def held(self, name: str) -> bool:
        """Say that it may be held: there is no way to know."""
        return True

    def hold(self, name: str) -> Any:
        """Make a folder that is marked as unfinished."""
        self._system.create(self._at(f"{name}/{UNFINISHED}"), True).close()
        return ExitStack()

    def alone(self) -> Any:
        """Return a context that locks nothing."""
        return nullcontext()


Folder = LocalFolder | HadoopFolder
"""Where a run's tables go; names in it may have slashes."""
