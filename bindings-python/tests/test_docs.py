"""What documentation shows, runs."""

import doctest
import re

import pytest
import tidegate
import tidegate.limits
import tidegate.testing
import tidegate.types
from conftest import ROOT

MODULES = [tidegate, tidegate.limits, tidegate.testing, tidegate.types]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_doctests(module):
    failed, tried = doctest.testmod(module)
    assert tried
    assert not failed


@pytest.mark.parametrize("page", ["README.md", "bindings-python/README.md", "docs/migrating-limits.md"])
def test_snippets(page):
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert snippets
    names = {}
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)
