"""Admission of browsers by a token: given once in an address, and kept as a cookie."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs

from aviot.web.access import Access
from aviot.web.gate import Application, Scope
from aviot.web.refusal import Refused

TOKEN = "token"
NO_TOKEN = "this app needs a token; open the whole address that it printed in its terminal"

Redirect = Callable[[str, dict[str, str]], Application]


@dataclass(frozen=True)
class Cookies:
    """Lets requests with the access token's cookie through; `redirect` makes the response that gives the cookie."""

    access: Access
    redirect: Redirect

    def admit(self, scope: Scope) -> Application | None:
        """Raise Refused without the token; exchange one in an address for its cookie, at the address without it."""
        access = self.access
        if access.token is None:
            return None
        if scope["method"] == "GET":
            given = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN, [""])[0]
            if given and access.admits(given):
                return self.redirect("/", {"Set-Cookie": access.set_cookie})
        cookies = [value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"]
        if not access.admits_cookies(cookies):
            raise Refused(HTTPStatus.FORBIDDEN, NO_TOKEN, code="no_token")
        return None
