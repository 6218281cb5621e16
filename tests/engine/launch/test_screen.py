"""A block at the bottom of a terminal: what is on the screen after any sequence of writes."""

# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import struct
import termios
from collections.abc import Iterator

import pyte
import pytest

from argosy.engine.launch.screen import Screen
from argosy.engine.metrics.summary import Fact


class Drawn(Screen):
    """A Screen on a pseudo-terminal, and an emulator that shows it."""

    def __init__(self, columns: int = 40, rows: int = 10, no_color: bool = False) -> None:
        self.master, self.slave = os.openpty()
        self.set_size(columns, rows)
        self.emulator = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.emulator)
        super().__init__(self.slave, no_color=no_color)

    def set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _write(self, data: bytes) -> None:
        super()._write(data)
        while data:  # with \r\n: the line discipline
            part = os.read(self.master, 1 << 16)
            self.stream.feed(part)
            data = data[len(part) - part.count(b"\r\n") :]

    @property
    def shown(self) -> list[str]:
        lines = [line.rstrip() for line in self.emulator.display]
        return "\n".join(lines).rstrip().splitlines()

    def finish(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def screen() -> Iterator[Drawn]:
    drawn = Drawn()
    yield drawn
    drawn.finish()


BLOCK = [[Fact("2 ranks up", "good"), Fact("5 s")], [Fact("step 3", "bold")]]


def test_output_scrolls_above_the_block(screen: Drawn) -> None:
    screen.show(BLOCK, "train.py")
    for number in range(3):
        screen.output(f"line {number}\n".encode())
    assert screen.shown[:3] == ["line 0", "line 1", "line 2"]
    assert screen.shown[3].startswith("── train.py ──")
    assert screen.shown[4:] == ["2 ranks up · 5 s", "step 3"]
    for number in range(3, 30):
        screen.output(f"line {number}\n".encode())
    assert screen.shown[5] == "line 29"
    assert screen.shown[6].startswith("── train.py ──")


def test_incomplete_lines_and_carriage_returns_keep_working(screen: Drawn) -> None:
    screen.show(BLOCK)
    screen.output(b"epoch 1: ")
    assert screen.shown == ["epoch 1:", "2 ranks up · 5 s", "step 3"]
    screen.output(b"10%\repoch 1: 20%")
    assert screen.shown == ["epoch 1: 20%", "2 ranks up · 5 s", "step 3"]
    screen.show([[Fact("step 4")]])
    assert screen.shown == ["epoch 1: 20%", "step 4"]
    screen.output("\repoch 1: ✓  \nloss ".encode())
    assert screen.shown == ["epoch 1: ✓", "loss", "step 4"]
    screen.hide()
    screen.output(b"0.5\n")
    assert screen.shown == ["epoch 1: ✓", "loss 0.5"]


def test_a_block_that_appears_below_an_incomplete_line(screen: Drawn) -> None:
    screen.output(b"first\nx" + b"y" * 60)  # two rows
    screen.show(BLOCK)
    assert screen.shown[0] == "first"
    assert screen.shown[1].startswith("xyyy")
    assert screen.shown[2:] == ["2 ranks up · 5 s", "step 3"]
    screen.output(b"\nnext\n")
    assert screen.shown == ["first", "x" + "y" * 39, "y" * 21, "next", "2 ranks up · 5 s", "step 3"]


def test_lines_of_the_launcher_do_not_join_an_incomplete_line(screen: Drawn) -> None:
    screen.show(BLOCK)
    screen.output(b"50%")
    screen.lines("WARNING slow\n")
    assert screen.shown == ["WARNING slow", "50%", "2 ranks up · 5 s", "step 3"]
    screen.hide()
    assert screen.shown == ["WARNING slow", "50%"]
    screen.lines("INFO end\n")
    assert screen.shown == ["WARNING slow", "50%", "INFO end"]


def test_long_lines_of_the_block_are_cut_and_a_low_terminal_has_none(screen: Drawn) -> None:
    screen.show([[Fact("x" * 100)], *([[Fact("more")]] * 20)])
    assert screen.shown[0] == "x" * 38 + "…"
    assert len(screen.shown) == 8
    screen.output(b"a\n")
    assert screen.shown[:2] == ["a", "x" * 38 + "…"]
    screen.set_size(40, 3)
    screen.show(BLOCK)
    assert screen.shown == ["a"]


def test_colours_unless_the_user_wants_none(screen: Drawn) -> None:
    screen.show(BLOCK)
    assert screen.emulator.buffer[0][0].fg == "green"
    plain = Drawn(no_color=True)
    plain.show(BLOCK)
    assert plain.emulator.buffer[0][0].fg == "default"
    plain.finish()


def test_escape_sequences_of_an_incomplete_line_do_not_move_the_block(screen: Drawn) -> None:
    screen.show(BLOCK)
    screen.output(b"a\x1b[31mred\x1b[0m\x1b[2A\x1b[K\tb\x07")
    assert screen.shown == ["ared    b", "2 ranks up · 5 s", "step 3"]
    assert screen.emulator.buffer[0][1].fg == "red"


def test_a_closed_terminal_raises(screen: Drawn) -> None:
    other = Drawn()
    other.finish()
    with pytest.raises(OSError):
        other.output(b"x")
