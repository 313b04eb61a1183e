"""Django, made ready for tests that override what they need of its settings. Nothing here has a database."""

import os

import django
from django.conf import settings

if not settings.configured and "DJANGO_SETTINGS_MODULE" not in os.environ:
    settings.configure(
        SECRET_KEY="of tests",
        ALLOWED_HOSTS=["testserver"],
        USE_TZ=True,
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "tidegate.django"],
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    )
django.setup()
