"""
Refuses files on network file systems, where SQLite's locks and shared memory don't work.
"""

from __future__ import annotations

from pathlib import Path

from headgate.errors import StoreError

#: File systems shared between hosts, as /proc/self/mountinfo names them.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.beegfs", "fuse.ceph",
        "fuse.cephfs", "fuse.davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs",
"fuse.juicefs",
        "fuse.mountpoint-s3", "fuse.nfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs", "gfs2",
        "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs",
        "smb2", "smb3", "smbfs",
    }
)  # fmt: skip

_MOUNTS = Path("/proc/self/mountinfo")


def file_system(path: Path, mounts: str) -> str:
    r"""
    Return the type of the file system a path is on.

    Args:
        path: absolute, without symbolic links.
        mounts: the text of /proc/self/mountinfo.

    Returns:
        Its name such as ``ext4``; "" where the text names no mount above the path.

    Source: proc(5), /proc/pid/mountinfo: field 5 is the mount point, spaces as \040; the type
    follows a lone hyphen.
    """
    best, found = -1, ""
    for line in mounts.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = (
            fields[4].encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
        )
        # Of two mounts on one place the later hides the earlier.
        if (path == Path(point) or Path(point) in path.parents) and len(point) >= best:
            best, found = len(point), right.split(" ")[0]
    return found


def refuse_network_file_system(path: Path, mounts: str | None = None) -> None:
    """
    Raise unless a database file may be kept at a path.

    Where there is no /proc (not Linux) nothing can be told, and nothing is refused.

    Raises:
        StoreError: the path is on a network file system; names it and the way out.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="replace")
        except OSError:
            return
    kind = file_system(path.resolve(), mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where several hosts can't share an "
            "SQLite file safely; use a local disk, or zookeeper:// or kafka:// for several hosts"
        )
