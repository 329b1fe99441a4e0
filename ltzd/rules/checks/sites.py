"""Judges how brands' sites answer a request for the logged-in member that carries no log-in.

A site that is set up correctly refuses it: 401, with the code of WordPress's REST API.
"""

from ltzd.rules.checks.findings import Finding, ok, warning

NOT_LOGGED_IN = "rest_not_logged_in"
_FILE = "the [site] section of the brand's file"


def on_answer(url: str, status: int, code: str | None) -> Finding:
    """`code` is the answer's, or None for a body without one."""
    if status == 401 and code == NOT_LOGGED_IN:
        return ok("sites", f"{url} refuses a visitor without a log-in, as it should.")
    if status in {401, 403}:
        return _warning(
            url,
            f"{status} without the code of WordPress's REST API",
            "a firewall, a plugin or a log-in page in front of the site answers in its place, "
            "and would refuse members too: let ltzd's requests pass",
        )
    if status == 404:
        return _warning(
            url,
            "404",
            "the site is in a folder or has another REST prefix: set url and rest_prefix in "
            f"{_FILE}; or its permalinks are plain: choose another structure in WordPress",
        )
    if status == 200:
        return _warning(
            url,
            "200 to a visitor without a log-in",
            "a cache keeps answers of users/me, which differ from member to member: "
            "exclude the REST API from it",
        )
    return _warning(url, str(status), "look at the site's log")


def on_no_answer(url: str, reason: str) -> Finding:
    return warning(
        "sites",
        f"{url} gave no answer ({reason}), so no member can log in: look for a wrong url in "
        f"{_FILE}, a firewall that keeps ltzd out, a certificate that has expired, or a site that "
        "needs more than five seconds.",
    )


def _warning(url: str, answer: str, advice: str) -> Finding:
    return warning("sites", f"{url} answers {answer}: {advice}.")
