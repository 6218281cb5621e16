"""Images in folders."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from PIL import Image

from argosy.engine.errors import ConfigError, DataError
from argosy.vision import datasets


@pytest.fixture
def root(tmp_path: Path) -> str:
    for name, red in (("cat/2.png", 20), ("cat/sub/1.PNG", 10), ("dog/x.jpg", 30), ("dog/notes.txt", 0)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".txt":
            path.write_text("no image")
        else:
            Image.new("RGB", (2, 2), (red, 0, 0)).save(path)
    return str(tmp_path)


def test_a_folder_per_class(root: str) -> None:
    data = datasets.DatasetFolder(root, transform=lambda image: image.getpixel((0, 0))[0])
    assert (data.classes, data.class_to_idx, data.targets) == (
        ["cat", "dog"],
        {"cat": 0, "dog": 1},
        [0, 0, 1],
    )
    assert [data[i] for i in range(2)] == [(20, 0), (10, 0)]
    assert len(datasets.DatasetFolder(root, extensions=[".png"])) == 2
    assert len(datasets.DatasetFolder(root, loader=str, is_valid_file=lambda path: path.endswith("txt"))) == 1


def test_all_images_below_a_folder(root: str) -> None:
    data = datasets.ImageFolder(root)
    assert len(data) == 3
    assert data[2][0].size == (2, 2)


def test_misuse_raises(root: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images"):
        datasets.ImageFolder(root, extensions=[".gif"])
    with pytest.raises(DataError, match="there is no folder"):
        datasets.DatasetFolder(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="give one of them"):
        datasets.ImageFolder(root, extensions=[".png"], is_valid_file=bool)
