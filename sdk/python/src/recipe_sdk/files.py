"""Files and folders that a reader sees whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
# Why else a disk refuses a write that may succeed later: rights, a file in the way, a mount that is gone or read-only,
# a fault. internal/disk is the same in Go.
REFUSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.ENOENT, errno.ENODEV, errno.ENXIO,
    errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN,
)  # fmt: skip


def full(error: BaseException, folder: Path) -> bool:
    """Whether a write below `folder` failed because the disk, or the user's quota on it, has no room. To be asked
    before what was written is removed."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    if any(os.strerror(number) in text for number in FULL):  # safetensors
        return True
    return torch_could_not_write(error) and free(folder) < 1 << 20


def refused(error: BaseException) -> bool:
    """Whether the disk refused a write for another reason that may pass."""
    if isinstance(error, OSError):
        return error.errno in REFUSED
    text = str(error)
    return torch_could_not_write(error) or any(os.strerror(number) in text for number in REFUSED)  # safetensors


def torch_could_not_write(error: BaseException) -> bool:
    """torch.save never says why: "PytorchStreamWriter failed", "inline_container.cc: unexpected pos"."""
    return any(word in str(error) for word in ("PytorchStreamWriter", "inline_container", "iostream error"))


def free(folder: Path) -> int:
    """How many bytes can still be written to the disk of a folder, or of its nearest parent that exists; 0: that cannot
    be found out."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def replace_directory(temporary: Path, final: Path) -> None:
    """Makes `temporary` appear as `final` in one step; an older `final` goes."""
    sync_tree(temporary)
    old = final.with_name(f".old-{final.name}-{os.getpid()}")
    if final.exists():
        os.replace(final, old)
    try:
        os.replace(temporary, final)
    except OSError:
        if old.exists():
            os.replace(old, final)
        raise
    sync_path(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_path(path: Path) -> None:
    """fsync of a file or directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """fsync of everything below a directory."""
    for directory, _, files in os.walk(path):
        for name in files:
            sync_path(Path(directory) / name)
        sync_path(Path(directory))


LOCK = ".recipe-lock"


class Temporary:
    """A folder for this user only. It goes with close, or, when this process was killed, with the next one of the same
    prefix: the process holds a lock in it while it lives. internal/temporary is the same in Go."""

    def __init__(self, prefix: str):
        parent = Path(tempfile.gettempdir())
        for left in parent.glob(f"{prefix}*"):
            _sweep(left)
        # The folder gets its name once the lock is held: another process takes no folder of this one for a left one.
        made = Path(tempfile.mkdtemp(prefix=f".new-{prefix}"))
        self.lock = os.open(made / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = made.rename(parent / made.name.removeprefix(".new-"))

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _sweep(left: Path) -> None:
    """Removes a folder of this user whose process has ended. What cannot be removed stays for the next one."""
    try:
        if left.is_symlink() or left.lstat().st_uid != os.geteuid():
            return
        lock = os.open(left / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    except OSError:
        pass  # its process lives
    finally:
        os.close(lock)
