"""For ``INSTALLED_APPS``: system checks and the management command."""

from __future__ import annotations

from django.apps import AppConfig


class TidegateConfig(AppConfig):
    name = "tidegate.django"
    label = "tidegate"
    verbose_name = "Tidegate"

    def ready(self) -> None:
        from . import checks, view_checks  # noqa: F401, RUF100 - it registers them
