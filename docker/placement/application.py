"""OpenStack's Placement for whoever knows the token of this installation.

Without a Keystone, Placement believes who a caller says to be (noauth2): the
token "admin" may do everything. So that token is given to callers who know
another, which nobody can guess, and none to the others, who get a 401.
"""

import hmac

from placement.wsgi import init_application

with open("/keys/token", encoding="ascii") as file:
    TOKEN = file.read().strip().encode()

placement = init_application()


def application(environ, start_response):
    """Answer one request."""
    given = environ.pop("HTTP_X_AUTH_TOKEN", "")
    if hmac.compare_digest(given.encode("utf-8", "surrogateescape"), TOKEN):
        environ["HTTP_X_AUTH_TOKEN"] = "admin"
    return placement(environ, start_response)
