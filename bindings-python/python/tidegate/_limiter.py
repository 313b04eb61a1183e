from __future__ import annotations

import json
from types import TracebackType
from typing import Any, NoReturn, Optional, Type, TypeVar

from . import _document
from ._tidegate import Clock, Core
from .types import Metrics

L = TypeVar("L", bound="Limiter")


class Limiter(Core):
    """Decides whether somebody may pass a rule: on the calling thread, which other threads need not wait for.

    ``Limiter({"login": "5/m"})`` keeps its state in this process, ``url="redis://..."`` shares it.
    """

    def __new__(
        cls: Type[L],
        rules: Optional[_document.Rules] = None,
        *,
        url: Optional[str] = None,
        document: Optional[_document.Document] = None,
        prefix: Optional[str] = None,
        deadline: Optional[float] = None,
    ) -> L:
        return cls._made(*_document.source(rules, url, document, prefix, deadline))

    @classmethod
    def from_document(cls: Type[L], document: _document.Document, format: Optional[str] = None) -> L:
        """Of a document: a dictionary, the path of a file, or text of a format (``toml``, ``yaml`` or ``json``)."""
        return cls._made(*_document.of_document(document, format))

    @classmethod
    def _made(cls: Type[L], document: Any, format: str, clock: Optional[Clock] = None) -> L:
        return super().__new__(cls, document, format, clock)

    @classmethod
    def _of(cls: Type[L], core: Core) -> L:
        """A limiter that is there already."""
        return super().__new__(cls, core, "limiter")

    # Both take the name of one rule, or the names of several.
    check_all = Core.check
    peek_all = Core.peek

    def metrics(self) -> Metrics:
        """What has been counted since the limiter was made; ``prometheus()`` is the same as text to scrape."""
        return json.loads(self._metrics())  # type: ignore[no-any-return]

    def __enter__(self: L) -> L:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.rules)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a limiter cannot be pickled; make one in each process, of the same rules and url")
