"""Every exception that Argosy raises on purpose. `ConfigError` is the user's to fix."""

# SPDX-License-Identifier: Apache-2.0


class ArgosyError(Exception):
    """The base of them all: `except ArgosyError` catches whatever Argosy says."""


class ConfigError(ArgosyError, ValueError):
    """An argument, a setting or a file that makes no sense; the message says what would."""


class UnknownNameError(ConfigError, AttributeError):
    """A name that does not exist here; the message lists or suggests what does."""


class ProgramError(ArgosyError, RuntimeError):
    """A program that cannot be built, rewritten or run as it stands."""


class UnknownSizeError(ProgramError):
    """Code asked for the number of a size that is unknown while the program is built."""


class FeedError(ConfigError):
    """What was fed does not fit the program: missing, unknown, wrong shape or dtype."""


class FetchError(ConfigError, KeyError):
    """What was asked for is not in the program."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class ScopeError(ArgosyError, RuntimeError):
    """A variable has no value yet, or one of another kind than the program wants."""


class NanInfError(ArgosyError, FloatingPointError):
    """A node made a NaN or an infinity while FLAGS_check_nan_inf was on."""


class DataError(ArgosyError, ValueError):
    """A reader or a data set gave something that cannot be used."""


class CorruptFileError(ArgosyError, OSError):
    """A file is truncated, altered, or of another format than its name says."""


class EOFException(ArgosyError, EOFError):
    """The reader of a started data loader has no more batches."""


class CollectiveError(ArgosyError, RuntimeError):
    """Ranks could not exchange what they had to; the message names the ranks that are missing."""


class PeerLostError(CollectiveError):
    """Another rank died or ended while this one needed it: a consequence, not the cause."""


class ScheduleError(ProgramError):
    """The ranks would not issue the same collectives: their programs differ."""


class KernelError(ArgosyError, RuntimeError):
    """Argosy's own kernels could not be built or loaded."""


class RpcError(ArgosyError, RuntimeError):
    """A request to a parameter server that got no answer."""


class BadMessage(RpcError, ValueError):
    """What came over the wire is no message of ours, or one of another version."""

    header: object = None
    """Its header, if that much could be read: the sender can be told."""


class RefusedError(RpcError):
    """The server answered that it will not do what was asked; the message is the server's."""


class DeadlineError(RpcError, TimeoutError):
    """The server has said nothing for as long as FLAGS_rpc_deadline allows."""
