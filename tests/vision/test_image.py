"""argosy.vision: the image backend."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from argosy import vision
from argosy.engine.errors import ConfigError


@pytest.fixture(autouse=True)
def _backend_as_before() -> Iterator[None]:
    yield
    vision.set_image_backend("pil")


def test_pillow_is_the_backend_at_first() -> None:
    assert vision.get_image_backend() == "pil"


def test_the_backend_sets_the_form_of_an_image(tmp_path: Path) -> None:
    path = str(tmp_path / "red.png")
    Image.new("RGB", (4, 2), (250, 10, 20)).save(path)
    assert vision.image_load(path).size == (4, 2)
    vision.set_image_backend("cv2")
    assert vision.get_image_backend() == "cv2"
    assert vision.image_load(path)[0, 0].tolist() == [20, 10, 250]
    assert vision.image_load(path, backend="pil").getpixel((0, 0)) == (250, 10, 20)


def test_that_pillow_decodes_for_cv2_is_said_at_debug_level_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="argosy"):
        vision.set_image_backend("cv2")
    assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, logger="argosy"):
        vision.set_image_backend("cv2")
    assert "decoded by Pillow" in caplog.text


def test_an_unknown_backend_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no image backend 'tensor'; use one of pil, cv2"):
        vision.set_image_backend("tensor")
    assert vision.get_image_backend() == "pil"
