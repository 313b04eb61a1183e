"""The compiled part. Public names are in `tidegate`; what is here alone is for this package."""

from os import PathLike
from typing import Any, Dict, Final, Iterable, List, Optional, Tuple, Type, TypeVar, Union, final

from typing_extensions import Self

__version__: Final[str]
TESTING: Final[bool]
ERROR_CODES: Final[List[str]]

Key = Union[str, bytes, Tuple[Union[str, bytes], ...]]
