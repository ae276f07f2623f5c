"""An S3 server on loopback."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import duckdb
from pyarrow import fs

from headgate.embedded import find_java, free_ports
from headgate.embedded.jars import S3PROXY, ensure_jars
from headgate.pipeline.sources.files import paths
from kit.machines import Machine

_START_S: Final = 300.0


class Bucket:
    """
    A bucket of an S3 server on loopback.

    Args:
        name: its name.
        environment: the variables by which clients reach it.
    """

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.environment = environment
        os.environ |= {n: v for n, v in environment.items() if "CHECKSUM" in n}
        self._system = fs.S3FileSystem(
            access_key=environment["AWS_ACCESS_KEY_ID"],
            secret_key=environment["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=environment["AWS_ENDPOINT_URL"],
            region=environment["AWS_REGION"],
            allow_bucket_creation=True,
        )
        self._system.create_dir(name)

    def put(self, key: str, data: bytes) -> None:
        """Make an object."""
        with self._system.open_output_stream(f"{self.name}/{key}", compression=None) as stream:
            stream.write(data)

    def objects(self) -> list[str]:
        """Return the objects' keys."""
        found = self._system.get_file_info(fs.FileSelector(self.name, recursive=True))
        return [info.path.partition("/")[2] for info in found if info.is_file]

    def fetch(self, key: str, folder: Path) -> Path:
        """Copy what is below a key into a new folder."""
        fs.copy_files(f"{self.name}/{key}", str(folder), source_filesystem=self._system)
        return folder


def rows(place: Path, table: str) -> list[tuple[Any, ...]]:
    """Return a table's rows: figures to nine digits, files by name, without the column `day`."""
    files = duckdb.sql(f"from read_parquet({paths(place, table)}, hive_partitioning = false)")
    if "day" in files.columns:  # not in those of a table that is divided by day
        files = files.project("* exclude (day)")
    if "file" in files.columns:
        files = files.project("* replace (parse_filename(file) as file)")
    found = [
        tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row)
        for row in files.fetchall()
    ]
    return sorted(found, key=str)


_QUIET: Final = '<configuration><root level="WARN"/></configuration>'


@contextlib.contextmanager
def s3_server(folder: Path, bucket: str) -> Iterator[Bucket]:
    """
    Serve a bucket of S3, which is in the server's memory.

    Args:
        folder: for the server's own files.
        bucket: the bucket.
    """
    [port] = free_ports(1)
    folder.mkdir(parents=True)
    address = f"http://127.0.0.1:{port}"
    lines = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": "headgate",
        "s3proxy.credential": "headgate-secret",
        "s3proxy.endpoint": address,
        "s3proxy.ignore-unknown-headers": "true",  # checksums, of bulk deletes too
        "jclouds.provider": "transient",  # over a folder, it takes prefixes for objects
        "jclouds.identity": "local",
        "jclouds.credential": "local",
    }
    (folder / "s3proxy.conf").write_text("".join(f"{n}={v}\n" for n, v in lines.items()))
    java = [str(find_java().executable), "-Xmx1g", "-cp", f"{ensure_jars(S3PROXY)}/*"]
    (folder / "logback.xml").write_text(_QUIET)
    java.insert(1, f"-Dlogback.configurationFile={folder / 'logback.xml'}")
    argv = [*java, "org.gaul.s3proxy.Main", "--properties", str(folder / "s3proxy.conf")]
    server = Machine(folder / "server", argv, {})
    try:
        until = time.monotonic() + _START_S
        while True:
            assert server.process.poll() is None, server.said
            assert time.monotonic() < until, server.said
            try:
                with urlopen(address, timeout=10):
                    break
            except HTTPError as refused:  # it is up: it wants a signature
                refused.close()
                break
            except OSError:
                time.sleep(0.2)
        environment = {
            "AWS_ACCESS_KEY_ID": lines["s3proxy.identity"],
            "AWS_SECRET_ACCESS_KEY": lines["s3proxy.credential"],
            "AWS_ENDPOINT_URL": address,
            "AWS_REGION": "us-east-1",
            # The server doesn't know the checksums that newer clients ask for.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }
        yield Bucket(bucket, environment)
    finally:
        server.stop()
