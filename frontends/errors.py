"""Typed errors of the import stage, and the base class of every error relaxc raises."""


class RelaxcError(Exception):
    """Base class of every error that relaxc raises on purpose.

    Args:
        message: What went wrong, in one sentence.
        node: Name of the model's node at fault, if one is.
        tensor: Name of the tensor at fault, if one is.
        file: Path of the file at fault, if one is.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        tensor: str | None = None,
        file: str | None = None,
    ) -> None:
        self.message, self.node, self.tensor, self.file = message, node, tensor, file
        places = [("file", file), ("node", node), ("tensor", tensor)]
        where = ", ".join(f"{kind} {name!r}" for kind, name in places if name)
        super().__init__(f"{message} ({where})" if where else message)


class InvalidModel(RelaxcError):
    """The model is missing, unreadable, malformed, or contradicts its own types and shapes."""


class CompileError(RelaxcError):
    """A converter or a phase of the pipeline failed on a model; the cause is chained."""


class InvalidInput(RelaxcError):
    """A value, an option or a path from the caller does not fit; nothing was run or written."""


class UnsupportedOperator(RelaxcError):
    """The model uses operators that no converter handles; the message lists all of them."""
