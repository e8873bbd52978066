# A Django application in one file that remembers each visit for ever, below a class-based view.
import sys

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from django.views import View

import visits

sys.modules.setdefault("django_leak", sys.modules[__name__])
settings.configure(
    ALLOWED_HOSTS=["*"],
    DEBUG=False,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    ROOT_URLCONF="django_leak",
    SECRET_KEY="not one",
)


class Visit(View):
    def get(self, request, number):
        answer = visits.handle(number, request.headers.get("User-Agent", ""))
        return JsonResponse(
            {"number": number, "answer": answer, "padding": "x" * (number % 500)}
        )


urlpatterns = [path("visit/<int:number>", Visit.as_view())]
django.setup()
app = get_wsgi_application()
