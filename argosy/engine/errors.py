"""Every exception that Argosy raises on purpose, and what its message suggests. `ConfigError` is the user's to fix."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable


class ArgosyError(Exception):
    """The base class: `except ArgosyError` catches every error of Argosy."""


class ConfigError(ArgosyError, ValueError):
    """An invalid argument, setting or file; the message says what is valid."""


class ArgumentTypeError(ConfigError, TypeError):
    """An argument of the wrong type, such as an array where a Variable is needed, or a Variable of a wrong dtype."""


class UnsupportedError(ConfigError, NotImplementedError):
    """A feature of Paddle that Argosy does not support; the message says what to use instead."""


class EnforceNotMet(ArgosyError):
    """The base class of what Paddle reports as `core.EnforceNotMet`: a program that cannot be built or run."""


class UnknownNameError(ConfigError, AttributeError):
    """A name that does not exist; the message lists or suggests those that do."""


class ProgramError(EnforceNotMet, RuntimeError):
    """A program that cannot be built, rewritten or run."""


class BuildError(ProgramError, ValueError):
    """A layer whose inputs do not fit each other, such as matrices of other sizes than their product needs."""


class BuildTypeError(BuildError, TypeError):
    """A layer that got an argument of a type that it cannot compute with."""


class BuildIndexError(BuildError, IndexError):
    """A layer that got an index or an axis out of range."""


class UnknownSizeError(ProgramError):
    """Code needs the value of a size that is unknown while the program is built."""


class FeedError(ConfigError, EnforceNotMet):
    """A feed does not match the program: missing, unknown, wrong shape or dtype."""


class FeedTypeError(FeedError, TypeError):
    """The feed is not a dict of names and arrays, or a list of such dicts."""


class FetchError(ConfigError, KeyError):
    """A fetched variable is not in the program."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class FetchTypeError(FetchError, TypeError):
    """An entry of a fetch list is neither a Variable nor a name."""


class LoDFetchError(ArgosyError, RuntimeError):
    """A ragged variable was fetched as a NumPy array, which has no lengths of sequences."""


class ScopeError(EnforceNotMet, RuntimeError):
    """A variable has no value yet, or one of another kind than the program needs."""


class NanInfError(EnforceNotMet, FloatingPointError, RuntimeError):
    """A node computed a NaN or an infinity while FLAGS_check_nan_inf was on."""


class DataError(ArgosyError, ValueError):
    """A reader or a data set gave invalid data."""


class FileError(ArgosyError, OSError):
    """A file or folder cannot be created or written: permissions, a full disk, a file instead of a folder."""


class CorruptFileError(ArgosyError, OSError):
    """A file is truncated, altered, or has another format than expected."""


class ExecuteError(ArgosyError, OSError):
    """An operation on a file system failed."""


class FSShellCmdAborted(ExecuteError):
    """Paddle's error for an aborted hadoop command; here a driver raises ExecuteError."""


class FSTimeOut(ArgosyError, TimeoutError):
    """An operation on a file system failed repeatedly until its time limit."""


class FSFileExistsError(ArgosyError, FileExistsError):
    """The target of an operation exists."""


class FSFileNotExistsError(ArgosyError, FileNotFoundError):
    """The source of an operation does not exist."""


class EOFException(ArgosyError, EOFError):
    """The reader of a started data loader has no more batches."""


class CollectiveError(ArgosyError, RuntimeError):
    """A collective failed; the message names the ranks that did not join."""

    def __init__(self, message: str = "", ranks: Iterable[int] = (), state: str = "") -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)
        """The ranks that did not join, if known: the launcher reports those, not this one."""
        self.state = state
        """Their state: left, failed, lost, unresponsive or late."""


class PeerLostError(CollectiveError):
    """Another rank failed or exited during a collective: this error is a consequence, not the cause."""


class ScheduleError(ProgramError):
    """The ranks would not start the same collectives: their programs differ."""


class KernelError(ArgosyError, RuntimeError):
    """The C++ kernels could not be built or loaded."""


class RpcError(ArgosyError, RuntimeError):
    """A request to a parameter server failed."""


class BadMessage(RpcError, ValueError):
    """A received message is malformed, or of another version."""

    header: object = None
    """Its header, if it could be parsed: the sender can be sent an error."""


class RejectedError(RpcError):
    """The server rejected the request; the message is the server's."""


class DeadlineError(RpcError, TimeoutError):
    """The server has not replied within FLAGS_rpc_deadline."""


class Preempted(SystemExit):
    """The job was preempted and has saved a checkpoint; the process exits with the code that requests a requeue."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code)
        self.message = message

    def __str__(self) -> str:  # SystemExit would show the code
        return self.message


def closest(name: str, known: Iterable[str], at_most: int = 3) -> list[str]:
    """The known names that resemble the name, the most similar first."""
    import difflib  # rarely needed, and fleetrun --help is fast without it

    return difflib.get_close_matches(name, list(known), n=at_most)


def nearest(name: str, known: Iterable[str], lists: bool = True) -> str:
    """' (did you mean …?)' for a name with a typo, else, if `lists`, a short list of the known names."""
    names = list(known)
    if close := closest(name, names):
        return f" (did you mean {' or '.join(map(repr, close))}?)"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f" (there are: {shown})" if names and lists else ""
