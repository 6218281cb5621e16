"""argosy.reader: Paddle's decorators."""

from argosy import reader


def test_the_decorators_fit_together() -> None:
    numbers = reader.chain(lambda: range(5), lambda: range(5, 10))
    doubled = reader.xmap_readers(lambda i: 2 * i, reader.buffered(numbers, 4), 2, 4, order=True)
    pairs = reader.compose(numbers, reader.firstn(reader.cache(doubled), 10))
    assert list(pairs()) == [(i, 2 * i) for i in range(10)]
    assert sorted(reader.shuffle(pairs, 100)()) == list(pairs())
    assert list(reader.shard(numbers, 2, 1)()) == [1, 3, 5, 7, 9]
    assert list(reader.map_readers(sum, pairs)()) == [3 * i for i in range(10)]


def test_misaligned_readers_raise_a_value_error() -> None:
    assert issubclass(reader.ComposeNotAligned, ValueError)
