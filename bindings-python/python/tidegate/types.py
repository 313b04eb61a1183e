"""What documents and metrics are made of, for type checkers: annotate a document with ``Document`` to have it checked.

    >>> from tidegate import Limiter
    >>> from tidegate.types import Document
    >>> document: Document = {"version": 1, "rules": {"login": {"limits": "5/m", "on_error": "deny"}}}
    >>> Limiter(document=document).rules
    ['login']

The core judges what is written; docs/document.md and docs/http.md say what the fields mean.
"""

from __future__ import annotations

from typing import List, Literal, Mapping, Optional, Sequence, TypedDict, Union

__all__ = [
    "Breaker",
    "DecisionCount",
    "Document",
    "ErrorCount",
    "Exempt",
    "Histogram",
    "Http",
    "Limit",
    "LimitTable",
    "Limits",
    "Metrics",
    "NodeMetrics",
    "PolicyMetrics",
    "Route",
    "RouteCount",
    "RouteRule",
    "Rule",
    "RuleTable",
    "Sentinel",
    "Store",
    "Tls",
]

#: A duration such as ``"100ms"``, or a whole number of milliseconds.
Wait = Union[str, int]
#: One text, or a list of them.
Texts = Union[str, Sequence[str]]
#: A status such as ``404``, or all of a class.
Status = Union[int, Literal["1xx", "2xx", "3xx", "4xx", "5xx"]]


class Breaker(TypedDict, total=False):
    """When a node that fails is left alone, and for how long."""

    failures: int
    wait: Wait
    max_wait: Wait


class Tls(TypedDict, total=False):
    """Certificates, as paths of PEM files."""

    ca: Optional[str]
    certificate: Optional[str]
    key: Optional[str]
    server_name: Optional[str]


class Sentinel(TypedDict, total=False):
    """How to log in to sentinels."""

    username: Optional[str]
    password: Optional[str]
    password_file: Optional[str]


class Store(TypedDict, total=False):
    """Where state lives, and how it is reached."""

    url: Optional[str]
    prefix: str
    deadline: Wait
    username: Optional[str]
    password: Optional[str]
    password_file: Optional[str]
    max_keys: int
    deny_cache_max: Wait
    key_secret: Optional[str]
    key_secret_file: Optional[str]
    breaker: Breaker
    batch_across_slots: bool
    tls: Optional[Tls]
    sentinel: Sentinel
    address_map: Mapping[str, str]


class _LimitTable(TypedDict):
    limit: int
    window: str


class LimitTable(_LimitTable, total=False):
    """One limit: so many units in each window, a duration such as ``"1m"``."""

    algorithm: Optional[
        Literal[
            "sliding_window_log", "sliding_window", "token_bucket", "sliding_window_counter", "fixed_window", "gcra"
        ]
    ]
    burst: Optional[int]
    precision: Optional[str]
    name: Optional[str]
    enforce: bool


#: A limit: a rate such as ``"100/m"``, or a table.
Limit = Union[str, LimitTable]
#: The limits of one rule: rates as text, or a list.
Limits = Union[str, Sequence[Limit]]


class _RuleTable(TypedDict):
    limits: Limits


class RuleTable(_RuleTable, total=False):
    """A rule with more than limits."""

    on_error: Literal["allow", "deny", "local"]
    share: Optional[int]
    enforce: bool


#: A rule: rates as text, a list of limits, or a table.
Rule = Union[Limits, RuleTable]


class Exempt(TypedDict, total=False):
    """Who passes without being counted."""

    networks: Texts
    keys: Texts
    app: Texts


class _RouteRule(TypedDict):
    rule: str


class RouteRule(_RouteRule, total=False):
    """A rule with a key of its own."""

    key: Optional[Texts]
    without_identity: Optional[Literal["refuse", "share", "skip"]]


class _Route(TypedDict):
    rules: Union[str, Sequence[Union[str, RouteRule]]]


class Route(_Route, total=False):
    """Requests, and the rules that they have."""

    name: Optional[str]
    path: Optional[str]
    prefix: Optional[str]
    methods: Optional[Texts]
    key: Optional[Texts]
    without_identity: Optional[Literal["refuse", "share", "skip"]]
    cost: Union[int, str, Mapping[str, int], None]
    exempt: Exempt
    mode: Literal["enforce", "shadow"]
    refund_status: Union[Status, Sequence[Status]]


class Http(TypedDict, total=False):
    """What holds for all requests."""

    trusted_proxies: Texts
    client_address: Optional[str]
    ipv4_prefix: Optional[int]
    ipv6_prefix: Optional[int]
    headers: Optional[Texts]
    x_ratelimit_reset: Optional[str]
    partition_key: bool
    refusal: Optional[str]
    exempt: Exempt
    case_sensitive: bool
    log_keys: bool
    default: Optional[Route]


class _Document(TypedDict):
    version: Literal[1]


class Document(_Document, total=False):
    """A document: where state lives, which rules there are, and which requests have them."""

    store: Store
    rules: Mapping[str, Rule]
    http: Http
    routes: Sequence[Route]


class DecisionCount(TypedDict):
    """How often a rule was answered so."""

    rule: str
    origin: Literal["store", "deny_cache", "local", "open", "closed"]
    allowed: bool
    count: int


class ErrorCount(TypedDict):
    """How often an error of a kind was raised, or made a failure policy decide."""

    kind: str
    count: int


class Histogram(TypedDict):
    """How often something was of which size: ``counts`` has one more than ``bounds``, for what is beyond them."""

    bounds: List[int]
    counts: List[int]
    sum: int


class NodeMetrics(TypedDict):
    """One server, as this process sees it."""

    address: str
    connected: bool
    breaker: Literal["closed", "half_open", "open"]
    opened: int


class Metrics(TypedDict):
    """What a limiter has counted since it was made; ``keys`` is of memory alone, ``latency`` is in microseconds."""

    decisions: List[DecisionCount]
    errors: List[ErrorCount]
    deny_cache_hits: int
    late_refunds: int
    keys: Optional[int]
    evicted: int
    latency: Histogram
    batch_sizes: Histogram
    nodes: List[NodeMetrics]


class RouteCount(TypedDict):
    """How often a route's requests came out so."""

    route: str
    is_shadow: bool
    outcome: Literal["allowed", "refused", "unavailable", "no_identity", "exempt", "unlimited", "invalid"]
    count: int


class PolicyMetrics(TypedDict):
    """What a policy has counted since it was made."""

    limiter: Metrics
    requests: List[RouteCount]
    unrouted: int
    charges_returned: int
    charges_lost: int
    reloads: int
    reloads_refused: int
