"""Two endpoints that are limited by the document alone: no view knows of it."""

from django.contrib import auth
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST


@csrf_exempt  # so that curl can call it
@require_POST
def login(request: HttpRequest) -> HttpResponse:
    user = auth.authenticate(request, username=request.POST.get("name"), password=request.POST.get("password"))
    if user is None:
        return JsonResponse({"error": "wrong name or password"}, status=401)
    auth.login(request, user)
    return JsonResponse({"user": user.get_username()})


@csrf_exempt
@require_POST
def upload(request: HttpRequest) -> HttpResponse:
    decision = request.ratelimit.decisions[0]  # what the middleware has decided, for whoever wants to know
    return JsonResponse({"received": len(request.body), "remaining": decision.remaining})
