"""
Resolve the jars of every Kafka again and rewrite their pins: a part of `make pins`.

`python scripts/pin_jars.py [VERSION…]` writes ``src/headgate/embedded/pins``.
"""

from __future__ import annotations

import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headgate.embedded import find_java
from headgate.embedded.cache import cache_dir
from headgate.embedded.jars import (
    CLIENTS,
    DELTA,
    KAFKA_3,
    KAFKA_4,
    PINS,
    S3A,
    S3PROXY,
    explain,
    folder_of,
    ivy_module,
    run_ivy,
    sha256,
    to_stderr,
)
from headgate.embedded.process import EmbeddedError
from headgate.errors import HeadgateError

# What the pins were resolved from: the broker, the console and perf tools, a log binding.
_RELOAD4J = ("ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36")
_ROOTS = {
    KAFKA_4: (
        f"org.apache.kafka:kafka_2.13:{KAFKA_4}",
        f"org.apache.kafka:kafka-tools:{KAFKA_4}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
    KAFKA_3: (
        f"org.apache.kafka:kafka_2.13:{KAFKA_3}",
        f"org.apache.kafka:kafka-tools:{KAFKA_3}",
        *_RELOAD4J,
    ),
    **{
        version: (
            f"org.apache.kafka:kafka_2.12:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            *_RELOAD4J,
        )
        for version in CLIENTS
    },
    DELTA: ("io.delta:delta-spark_4.2_2.13:4.4.0",),
    S3A: ("org.apache.hadoop:hadoop-aws:3.5.0",),
    S3PROXY: ("org.gaul:s3proxy:2.7.0",),
}
# Only jars of these groups are pinned; Spark has the others.
_OWN = {
    DELTA: ("io.delta", "io.unitycatalog"),
    S3A: ("org.apache.hadoop", "software.amazon.awssdk", "software.amazon.s3.analyticsaccelerator"),
}
# kafka-tools draws in the whole of Connect and its web server for one tool that we don't run.
_LEFT_OUT = (
    ("org.apache.kafka", "connect-runtime"),
    ("org.apache.kafka", "connect-api"),
    ("org.apache.kafka", "connect-json"),
    # Old Kafkas' log binding, whose place reload4j takes.
    ("org.slf4j", "slf4j-log4j12"),
    ("log4j", "log4j"),
    # Clients of clouds to which the S3 server could pass requests on.
    ("com.azure", ".*"),
    ("com.amazonaws", ".*"),
)


def _with_all_they_need(module: str) -> str:
    """Make Ivy fetch what a module's jars depend on, too, except what is left out."""
    root = ET.fromstring(module)
    dependencies = root.find("dependencies")
    assert dependencies is not None
    for one in dependencies:
        one.attrib |= {"transitive": "true", "conf": "default->default"}
    for org, name in _LEFT_OUT:
        ET.SubElement(dependencies, "exclude", org=org, module=name, matcher="exactOrRegexp")
    return ET.tostring(root, encoding="unicode")


def resolve(name: str, roots: Iterable[str], work: Path, say: Callable[[str], None]) -> Path:
    """Let Ivy find out all that some jars need; return the folder that it puts them into."""
    lib = work / "lib"
    into = f"{lib}/[artifact]-[revision](-[classifier]).[ext]"
    module = _with_all_they_need(ivy_module(roots))
    status, lines = run_ivy(name, module, work, say, "-retrieve", into)
    if status != 0:
        raise EmbeddedError(explain(find_java(), lines))
    return lib


def write_pins(version: str) -> Path:
    """
    Resolve a Kafka's jars again and write their pins.

    Args:
        version: one of `VERSIONS` or `CLIENTS`, or `DELTA`, `S3A`, `S3PROXY`.

    Returns:
        The file that was written.
    """
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="pin-") as name:
        lib = resolve(version, _ROOTS[version], Path(name), to_stderr)
        report = ET.parse(Path(name) / "ivy" / "cache" / "headgate-kafka-default.xml")
        pins = []
        for resolved in report.iterfind("./dependencies/module"):
            for revision in resolved.iterfind("revision"):
                for artifact in revision.iterfind("artifacts/artifact"):
                    org, module_name = resolved.get("organisation"), resolved.get("name")
                    file = f"{artifact.get('name')}-{revision.get('name')}.jar"
                    if org not in _OWN.get(version, (org,)):
                        (lib / file).unlink()
                        continue
                    coordinates = f"{org}:{module_name}:{revision.get('name')}"
                    pins.append(f"{sha256(lib / file)}  {coordinates}  {file}")
        extra = {jar.name for jar in lib.glob("*.jar")} - {pin.split()[2] for pin in pins}
        if extra:
            raise EmbeddedError(f"jars that no pin names: {', '.join(sorted(extra))}")
    name = folder_of(version)
    path = PINS / f"{name}.txt"
    head = f"# Written by `make pins`: SHA-256, coordinates and file of each jar of {name}.\n"
    path.write_text(head + "".join(f"{pin}\n" for pin in sorted(pins, key=lambda p: p.split()[1])))
    return path


def main() -> int:
    """Pin the versions named, or all; 1 if one couldn't be resolved."""
    versions = sys.argv[1:] or list(_ROOTS)
    try:
        # Ivy mostly waits for answers, so the versions come side by side.
        with ThreadPoolExecutor() as pool:
            for version, path in zip(versions, pool.map(write_pins, versions), strict=True):
                to_stderr(f"{version}: {path}")
    except HeadgateError as error:
        to_stderr(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
