"""Where a cache of Django's has its Redis, as a document's ``[store]`` says it."""

from __future__ import annotations

import re
import ssl
from typing import Any, Dict, List, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

DJANGO = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"
PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
TLS_FILES = {"ssl_ca_certs": "ca", "ssl_certfile": "certificate", "ssl_keyfile": "key"}
UNVERIFIED = ("none", "None", None, ssl.CERT_NONE, "optional", ssl.CERT_OPTIONAL)
# What these say holds anyhow, or does not matter here.
TLS_IGNORED = ("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version")


class NoStore(ImproperlyConfigured):
    """A cache that cannot be Tidegate's store."""


def store_of(alias: str) -> Dict[str, Any]:
    """The store of ``CACHES[alias]``: url, credentials, TLS and prefix.

    Raises NoStore if there is no such alias, or if it is not on Redis.
    """
    if alias not in settings.CACHES:
        known = ", ".join(sorted(settings.CACHES))
        raise NoStore(f"CACHES has no {alias!r}; write TIDEGATE['USE_CACHE'] with one that it has: {known}")
    cache: Mapping[str, Any] = settings.CACHES[alias]
    backend = cache.get("BACKEND", "")
    if backend not in (DJANGO, DJANGO_REDIS):
        raise NoStore(
            f"CACHES[{alias!r}] is a {backend}, which is not on Redis; write TIDEGATE = {{'URL': 'redis://...'}}, or "
            f"USE_CACHE with the alias of a {DJANGO} or {DJANGO_REDIS}"
        )
    options = cache.get("OPTIONS") or {}
    if backend == DJANGO_REDIS:
        options = _of_django_redis(options)
    store = _store(_first(cache.get("LOCATION"), alias), options, alias)
    store.update(_prefix(cache, alias))
    return store


def _of_django_redis(options: Mapping[str, Any]) -> Dict[str, Any]:
    """django-redis's options by the names that redis-py has for them."""
    pool = dict(options.get("CONNECTION_POOL_KWARGS") or {})
    if options.get("PASSWORD"):
        pool.setdefault("password", options["PASSWORD"])
    for name in ("SENTINELS", "SENTINEL_KWARGS"):
        if options.get(name):
            pool[name] = options[name]
    return pool


def _first(location: Any, alias: str) -> str:
    """The server that is written to; Django and django-redis read from the others alone."""
    servers: List[str] = re.split("[;,]", location) if isinstance(location, str) else list(location or ())
    if not servers or not servers[0]:
        raise NoStore(f"CACHES[{alias!r}] has no LOCATION; write 'redis://host:6379'")
    return servers[0].strip()


def _store(location: str, options: Mapping[str, Any], alias: str) -> Dict[str, Any]:
    """What redis-py makes of a URL and options: what the URL says comes first."""
    url = urlsplit(location)
    options = {**options, **dict(parse_qsl(url.query))}
    store: Dict[str, Any] = {}
    if url.scheme == "unix":
        database = options.get("db", 0)
        store["url"] = f"redis+unix://{unquote(url.path)}" + (f"?db={database}" if str(database) != "0" else "")
    elif url.scheme in ("redis", "rediss"):
        host = url.netloc.rpartition("@")[2]
        database = dict(parse_qsl(url.query)).get("db") or url.path.strip("/") or options.get("db", 0)
        plain = f"{url.scheme}://{host or 'localhost'}/{database}"
        store["url"] = _sentinels(url.scheme, host, database, options) or plain
    else:
        raise NoStore(
            f"the LOCATION of CACHES[{alias!r}] is no redis://, rediss:// or unix:// URL; write TIDEGATE['URL'] instead"
        )
    username, password = url.username or options.get("username"), url.password or options.get("password")
    store.update({"username": unquote(username)} if username else {})
    store.update({"password": unquote(password) if url.password else str(password)} if password else {})
    store.update(_tls(options, alias) if url.scheme == "rediss" else {})
    store.update(_of_sentinels(options))
    return store


def _sentinels(scheme: str, host: str, database: Any, options: Mapping[str, Any]) -> str:
    """django-redis's URL has the primary's name for a host, and the sentinels among the options."""
    sentinels = ",".join(f"{name}:{port}" for name, port in options.get("SENTINELS", ()))
    return f"{scheme}+sentinel://{sentinels}/{host}/{database}" if sentinels else ""


def _of_sentinels(options: Mapping[str, Any]) -> Dict[str, Any]:
    login = options.get("SENTINEL_KWARGS", {})
    login = {name: login[name] for name in ("username", "password") if login.get(name)}
    return {"sentinel": login} if login and options.get("SENTINELS") else {}


def _tls(options: Mapping[str, Any], alias: str) -> Dict[str, Any]:
    unverified = options.get("ssl_cert_reqs", "required") in UNVERIFIED
    if unverified or str(options.get("ssl_check_hostname", True)).lower() in ("false", "0", "no"):
        raise NoStore(
            f"CACHES[{alias!r}] does not verify its server's certificate, which Tidegate always does; write "
            "TIDEGATE = {'URL': ..., 'STORE': {'tls': {'ca': 'ca.pem'}}}"
        )
    unknown = sorted(name for name in options if name.startswith("ssl_") and name not in (*TLS_FILES, *TLS_IGNORED))
    if unknown:
        raise NoStore(
            f"{', '.join(unknown)} of CACHES[{alias!r}] cannot be taken over; write TIDEGATE = {{'URL': ..., "
            "'STORE': {'tls': {'ca': .., 'certificate': .., 'key': .., 'server_name': ..}}}"
        )
    tls = {name: str(options[option]) for option, name in TLS_FILES.items() if options.get(option)}
    return {"tls": tls} if tls else {}


def _prefix(cache: Mapping[str, Any], alias: str) -> Dict[str, str]:
    """Keys that begin as the cache's do, so that whoever shares the server keeps apart, and beside the cache's own."""
    if not cache.get("KEY_PREFIX"):
        return {}
    prefix = f"{cache['KEY_PREFIX']}:tidegate"
    if not PREFIX.fullmatch(prefix):
        raise NoStore(
            f"the KEY_PREFIX of CACHES[{alias!r}] cannot begin Tidegate's keys; write TIDEGATE['STORE'] = "
            "{'prefix': ...} of 1 to 64 letters, digits, _ . : and -"
        )
    return {"prefix": prefix}
