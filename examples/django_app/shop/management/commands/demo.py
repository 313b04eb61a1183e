"""The example's one command."""

from django.contrib.auth.models import User
from django.core.management import BaseCommand, call_command


class Command(BaseCommand):
    help = "Makes the user alice, whose password is alice, and serves on 127.0.0.1:8000."

    def handle(self, **options: object) -> None:
        call_command("migrate", verbosity=0)
        if not User.objects.filter(username="alice").exists():
            User.objects.create_user("alice", password="alice")
        self.stdout.write(
            "In another terminal:\n"
            "  curl -c jar -d name=alice -d password=alice 127.0.0.1:8000/login\n"
            "  for i in 1 2 3 4 5 6 7; do curl -b jar -id bytes 127.0.0.1:8000/upload; echo; done"
        )
        call_command("runserver", "127.0.0.1:8000", use_reloader=False, skip_checks=False)
