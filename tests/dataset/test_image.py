"""argosy.dataset.image: Paddle's functions on images."""

from argosy.dataset import image


def test_every_promised_name_is_there() -> None:
    assert all(callable(getattr(image, name)) for name in image.__all__)
