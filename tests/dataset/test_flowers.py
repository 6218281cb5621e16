"""argosy.dataset.flowers: which split is which, and the arguments of the readers."""

import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import argosy.engine.data.draw_flowers
from argosy.dataset import flowers
from argosy.engine.data import checked_files


@pytest.fixture(scope="module", autouse=True)
def _small_drawn_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache whose drawn set has few images: 2, 1 and 1 per class."""
    cache = tmp_path_factory.mktemp("cache")
    sizes = {"tstid": 2, "trnid": 1, "valid": 1}

    def write(folder: Path) -> None:
        argosy.engine.data.draw_flowers.write_flowers(folder, sizes)

    checked_files.create_once(
        cache / "dataset" / "flowers-drawn", argosy.engine.data.draw_flowers.VERSION, write
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARGOSY_CACHE", str(cache))
        yield


def test_train_is_the_largest_split() -> None:
    sizes = [len(list(r(image_size=4)())) for r in (flowers.train, flowers.test, flowers.valid)]
    assert sizes == [204, 102, 102]


def test_every_class_occurs() -> None:
    assert {label for _, label in flowers.train(image_size=4)()} == set(range(102))


def test_images_have_224_pixels_by_default() -> None:
    [(image, label)] = itertools.islice(flowers.train(use_xmap=True)(), 1)
    assert (image.size, image.dtype.name, type(label)) == (3 * 224 * 224, "float32", int)
    [(image, _)] = itertools.islice(flowers.valid(use_xmap=False, image_size=64)(), 1)
    assert image.size == 3 * 64 * 64


def test_reading_in_order_meets_many_classes_at_once() -> None:
    labels = [label for _, label in itertools.islice(flowers.train(image_size=4)(), 32)]
    assert len(set(labels)) > 20


def test_a_mapper_replaces_the_transform() -> None:
    reader = flowers.test(mapper=lambda sample: sample[1], buffered_size=8, use_xmap=False, cycle=True)
    assert len(list(itertools.islice(reader(), 150))) == 150


def test_the_arguments_are_paddles_and_ours_come_by_keyword() -> None:
    parameters = inspect.signature(flowers.train).parameters.values()
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        "mapper",
        "buffered_size",
        "use_xmap",
        "cycle",
    ]
    assert [p.name for p in parameters if p.kind is p.KEYWORD_ONLY] == [
        "image_size",
        "seed",
        "epoch",
        "share",
    ]
