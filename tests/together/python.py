"""python.py DOCUMENT CALLS: see tests/src/bin/together.rs."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate import Limiter

document, calls = sys.argv[1:]
limiter = Limiter.from_document(Path(document))
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda _: bool(limiter.check("hammer", "alice")), range(int(calls)))))
