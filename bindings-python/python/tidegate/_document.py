"""Every limiter is made of one document, which the core alone judges: here it is put together."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping, Optional, Tuple, Union

from . import types

# Of a plain dictionary no type checker knows more than that; one that is annotated as a `types.Document` was checked.
Document = Union[str, "os.PathLike[str]", types.Document, Mapping[str, Any]]
Rules = Mapping[str, types.Rule]


def source(
    rules: Optional[Rules],
    url: Optional[str],
    document: Optional[Document],
    prefix: Optional[str],
    deadline: Optional[float],
) -> Tuple[Any, str]:
    """What the constructors take, as the core takes it: text and its format."""
    if document is not None:
        if not (rules is None and url is None and prefix is None and deadline is None):
            raise TypeError(
                "the document says everything; write rules, url, prefix and deadline into it, or leave it out"
            )
        return of_document(document, None)
    store = {"url": url, "prefix": prefix, "deadline": None if deadline is None else duration(deadline)}
    store = {name: value for name, value in store.items() if value is not None}
    return of_document({"version": 1, "store": store, "rules": rules or {}}, None)


def of_document(document: Document, format: Optional[str]) -> Tuple[Any, str]:
    """A document as a dictionary, as text of a format (toml, yaml or json), or as the path of a file."""
    if isinstance(document, Mapping):
        return json.dumps(document, default=_plain), "json"
    if format is None:
        return os.fspath(document), "path"
    if format not in ("toml", "yaml", "json"):
        raise ValueError(f"there is no format {format!r}; write 'toml', 'yaml' or 'json', or leave it out for a path")
    return document, format


def duration(seconds: float) -> str:
    """Seconds, as a document writes them."""
    return f"{math.ceil(seconds * 1000)}ms"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a document has no {type(value).__name__}; write dicts, lists, str, int and bool")
