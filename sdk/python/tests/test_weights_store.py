"""Where a trainer and a receiver of its weights find each other: on loopback in no store on TCP."""

import os
from datetime import timedelta

import pytest
import torch

from recipe_sdk import nccl, process_group


def test_groups_on_loopback_meet_in_a_file(monkeypatch):
    monkeypatch.delenv(nccl.ADDRESS, raising=False)
    listener = nccl._Listener(nccl.Sender(), torch.device("cpu"))
    folder = os.path.dirname(listener._store("group"))
    assert os.stat(folder).st_mode & 0o777 == 0o700 and not hasattr(listener, "store_port")
    listener.close()
    assert not os.path.exists(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_file_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(PermissionError, match="another user"):
        process_group.store_at("127.0.0.1", str(tmp_path / "group"), timedelta(seconds=1))
