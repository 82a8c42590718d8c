from __future__ import annotations

import stat

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.service.secret import secret_of
from contextpilot_rag.service.settings import ServiceSettings


def test_the_secret_is_given_or_made_once(tmp_path):
    assert secret_of(ServiceSettings(salt_secret="mine", state=tmp_path)) == "mine"
    assert not list(tmp_path.iterdir())
    assert secret_of(ServiceSettings()) != secret_of(ServiceSettings())
    folder = tmp_path / "state"
    made = secret_of(ServiceSettings(state=folder))
    assert len(made) == 43
    assert made == secret_of(ServiceSettings(state=folder))
    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert made != secret_of(ServiceSettings(state=tmp_path / "other"))


def test_a_secret_that_is_none_or_not_kept_is_an_error(tmp_path):
    settings, file = ServiceSettings(state=tmp_path), tmp_path / "secret"
    for content in (b"", b"short", b"\xff" * 43):
        file.write_bytes(content)
        file.chmod(0o600)
        with pytest.raises(SettingsError, match="not the secret that was made here"):
            secret_of(settings)
    file.unlink()
    made = secret_of(settings)
    file.chmod(0o644)
    with pytest.raises(SettingsError, match=r"everybody may read .*; chmod 600") as caught:
        secret_of(settings)
    assert made not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="--state "):
        secret_of(ServiceSettings(state=tmp_path / "file"))
