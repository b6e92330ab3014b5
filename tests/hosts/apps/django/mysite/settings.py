"""Settings of a Django project."""

SECRET_KEY = "not a secret"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "mysite.urls"
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
USE_TZ = True
