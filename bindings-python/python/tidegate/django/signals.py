"""What an application may want to hear of. A receiver that raises is logged by Django, and changes no response."""

from django.dispatch import Signal

rate_limited = Signal()
"""A limit refused: ``request``, ``admission``. In a shadow route the request passed (``admission.is_shadow``)."""

store_degraded = Signal()
"""The store failed, and a rule's ``on_error`` decided: ``request``, ``admission``. Sent for each such request."""
