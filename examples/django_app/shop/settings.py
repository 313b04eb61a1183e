"""As little as a site with users needs, and Tidegate: one line among the middleware, one for its document."""

import os
import pathlib

BASE_DIR = pathlib.Path(__file__).resolve().parent.parent

DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
SECRET_KEY = "only-for-this-example-and-no-other-site"
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "tidegate.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tidegate.django.RateLimitMiddleware",  # after the one that knows the user
]
# Users and sessions of the example: a file beside it.
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3"),
    }
}
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
WSGI_APPLICATION = "shop.wsgi.application"

TIDEGATE = {"DOCUMENT": BASE_DIR / "tidegate.toml"}
