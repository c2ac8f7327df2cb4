from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build import resources

if TYPE_CHECKING:
    from pathlib import Path


def test_a_checkout_has_its_data_at_its_top() -> None:
    top = resources.checkout()
    assert top is not None
    assert resources.recipes_dir() == top / "recipes"
    assert (resources.recipes_dir() / "node24.toml").is_file()
    assert (resources.templates_dir() / "node24.Dockerfile.j2").is_file()
    assert (resources.native_dir() / "version.h").is_file()
    assert resources.registry_lock().is_file()
    assert b"Apache License" in resources.licence_text()
    assert resources.default_dist() == top / "dist"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a wheel lays it out, beside a stranger's project."""
    package = tmp_path / "site-packages" / "capsule_build"
    data = package / "_data"
    for name in ("recipes", "templates", "native"):
        (data / name).mkdir(parents=True)
    (data / "registry.lock.json").write_text("{}")
    (data / "LICENSE").write_text("the licence")
    (tmp_path / "site-packages" / "pyproject.toml").write_text("")
    (tmp_path / "site-packages" / "recipes").mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", package)
    return data


def test_an_installed_package_carries_its_data(installed: Path) -> None:
    assert resources.recipes_dir() == installed / "recipes"
    assert resources.templates_dir() == installed / "templates"
    assert resources.native_dir() == installed / "native"
    assert resources.registry_lock() == installed / "registry.lock.json"
    assert resources.licence_text() == b"the licence"


def test_outside_a_checkout_outputs_go_to_the_working_folder(installed: Path) -> None:
    assert installed.is_dir()
    assert resources.checkout() is None
    assert str(resources.default_dist()) == "dist"


def test_a_folder_without_a_project_file_is_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "capsule_build").mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "capsule_build")
    assert resources.checkout() is None
