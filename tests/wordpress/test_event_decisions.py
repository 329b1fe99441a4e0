"""The states of a shop's event after an attempt, and its signature: PHP without WordPress."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ltzd.rules.request_signatures import NONCE_WAS_USED, signature
from tests.support.sites.plugin_site import PLUGIN
from tests.support.tools import php_path

FOLDER = PLUGIN.parent / "events"
NOW = 1_900_000_000

Json = dict[str, object]

ROW: Json = {
    "attempts": 1,
    "started_at": NOW - 5,
    "unclear_since": None,
    "created_at": NOW - 10,
}
ANSWER: Json = {
    "status": 0,
    "body": None,
    "retry_after": None,
    "was_sent": True,
    "is_others": False,
}
OTHER = {"success": False, "error": "Duplicate event", "details": {"existingEventId": "e-1"}}


async def run(code: str, *arguments: object) -> Any:
    """Runs code after the plugin's files, with the arguments as `$given`; returns its JSON."""
    names = ("decision.php", "sending.php")
    files = "".join(f"require '{FOLDER / name}';" for name in names)
    code = (
        "namespace Ltzd\\Loyalty; define( 'ABSPATH', '/' );"
        "function settings() { return [ 'url' => 'https://ltzd.example/behind' ]; }"
        "function wp_parse_url( $url, $part ) { return parse_url( $url, $part ); }"
        f"{files} $given = json_decode( $argv[1], true ); echo json_encode( {code} );"
    )
    process = await asyncio.create_subprocess_exec(
        *(str(php_path()), "-n", "-d", "error_reporting=-1", "-d", "display_errors=1"),
        *("-r", code, "--", json.dumps(arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return json.loads(output)


def refused(status: int, **details: object) -> Json:
    body = {"success": False, "error": "No", "details": details}
    return {"status": status, "body": body}


LATE: Json = {"unclear_since": NOW - 60}
SOON: Json = {"unclear_since": NOW - 20}
OLD: Json = {"created_at": NOW - 4 * 86400}
RECORDED = {"success": True, "eventId": "e-2", "rewardAmount": 7}
CASES: dict[str, tuple[Json, Json, Json]] = {
    "recorded": ({}, {"status": 200, "body": RECORDED}, {"state": "sent", "event_id": "e-2"}),
    "queued": ({}, {"status": 202, "body": RECORDED}, {"state": "sent", "reward": 7}),
    "recorded late": (LATE, {"status": 200, "body": RECORDED}, {"state": "sent"}),
    "no event's id": ({}, {"status": 200, "body": {"success": True}}, {"state": "waiting"}),
    "another shop's page": ({}, {"status": 200, "body": None}, {"state": "waiting"}),
    "another's duplicate": (
        {},
        {"status": 409, "body": OTHER},
        {"state": "waiting", "due_at": NOW + 70},
    ),
    "our own duplicate": (
        SOON,
        {"status": 409, "body": OTHER},
        {"state": "sent", "event_id": "e-1"},
    ),
    "a duplicate of another order": (
        SOON,
        {"status": 409, "body": OTHER, "is_others": True},
        {"state": "unclear"},
    ),
    "a used nonce": (
        LATE,
        {"status": 401, "body": {"success": False, "error": NONCE_WAS_USED}},
        {"state": "sent"},
    ),
    "no connection": ({}, {"was_sent": False}, {"state": "waiting", "due_at": NOW + 60}),
    "no connection for long": (
        {"attempts": 9},
        {"was_sent": False},
        {"state": "waiting", "due_at": NOW + 3600},
    ),
    "no connection for days": (OLD, {"was_sent": False}, {"state": "refused"}),
    "no answer": (
        {},
        {},
        {"state": "waiting", "due_at": NOW + 1, "unclear_since": NOW - 5},
    ),
    "no answer again": (SOON, {}, {"state": "waiting", "unclear_since": NOW - 20}),
    "no answer for a minute": (LATE, {}, {"state": "unclear"}),
    "a proxy's error": ({}, {"status": 502}, {"state": "waiting", "unclear_since": NOW - 5}),
    "a fault of ltzd": ({}, refused(500), {"state": "waiting", "unclear_since": NOW - 5}),
    "busy": (
        {},
        refused(503) | {"retry_after": 90},
        {"state": "waiting", "due_at": NOW + 90},
    ),
    "busy after no answer": (SOON, refused(503), {"state": "unclear"}),
    "a budget": (
        {},
        refused(429, reason="budget_exhausted") | {"retry_after": 7200},
        {"state": "waiting", "due_at": NOW + 7200},
    ),
    "a cooldown": ({}, refused(429, reason="cooldown"), {"state": "refused", "email": None}),
    "a maximum": ({}, refused(429, reason="max_claims_reached"), {"state": "refused"}),
    "a maximum after no answer": (
        SOON,
        refused(429, reason="max_claims_reached"),
        {"state": "unclear"},
    ),
    "a wrong key": ({}, refused(401), {"state": "waiting", "due_at": NOW + 3600}),
    "a wrong domain": ({}, refused(403), {"state": "waiting", "due_at": NOW + 3600}),
    "a wrong domain for days": (OLD, refused(403), {"state": "refused", "note": "No"}),
    "an unknown type": ({}, refused(400), {"state": "refused", "note": "No"}),
}


async def test_each_answer_leads_to_its_state() -> None:
    cases = {name: [ROW | row, ANSWER | answer] for name, (row, answer, _) in CASES.items()}
    code = (
        "array_map( function ( $case ) { return decide( $case[0], $case[1], $GLOBALS['given'][1] );"
        " }, $given[0] )"
    )
    decided = await run(code, cases, NOW)
    for name, (_, _, expected) in CASES.items():
        assert decided[name] | expected == decided[name], name


async def test_whatever_ltzd_answers_after_a_minute_without_outcome_nothing_is_sent_again() -> None:
    bodies = [None, OTHER, {"success": False}, {"success": False, "details": {"reason": "x"}}]
    answers = [
        ANSWER | {"status": status, "body": body, "was_sent": was_sent, "is_others": True}
        for status in (0, 200, 400, 401, 403, 404, 409, 413, 429, 500, 502, 503)
        for body in bodies
        for was_sent in (True, False)
    ]
    code = (
        "array_map( function ( $answer ) {"
        " return decide( $GLOBALS['given'][0], $answer, $GLOBALS['given'][2] ); }, $given[1] )"
    )
    for changes in await run(code, ROW | LATE, answers, NOW):
        assert changes["state"] == "unclear"


async def test_the_signature_is_ltzds() -> None:
    key, nonce, body = "ltzsk_test_0123456789abcdef", "ab" * 16, '{"brandId":"0x1"}'
    code = "signature_headers( $given[0], '0xb', $given[1], $given[2], $given[3] )"
    headers = await run(code, key, NOW, nonce, body)
    target = b"/behind/service-api/manual-event"
    assert headers == {
        "X-LTZ-Brand-Id": "0xb",
        "X-LTZ-Timestamp": str(NOW),
        "X-LTZ-Nonce": nonce,
        "X-LTZ-Signature": signature(key, str(NOW), nonce, "POST", target, body.encode()),
    }
    assert await run(code, "", NOW, nonce, body) == []


@pytest.mark.parametrize(
    ("message", "is_unconnected"),
    [
        ("cURL error 7: Failed to connect", True),
        ("cURL error 6: Could not resolve host", True),
        ("cURL error 28: Operation timed out", False),
        ("cURL error 52: Empty reply from server", False),
        ("cURL error 56: Connection reset by peer", False),
        ("http_request_failed", False),
    ],
)
async def test_only_an_error_before_the_request_means_that_nothing_was_sent(
    message: str, is_unconnected: bool
) -> None:
    assert await run("is_unconnected( $given[0] )", message) is is_unconnected


_REVIEWS = r"""<?php
namespace Ltzd\Loyalty;
define( 'ABSPATH', '/' );
const COMMENT = [ 'comment_approved' => '1', 'comment_post_ID' => 7, 'user_id' => 0 ];
function add_action() {}
function add_filter() {}
function register_deactivation_hook() {}
function get_option( $name ) {
	return 'ltzd_loyalty_events' === $name ? [ 'review' => 'review_submission' ] : '1';
}
function get_post_type( $post ) { return 'product'; }
function is_email( $text ) { return true; }
function wp_json_encode( $value ) { return json_encode( $value ); }
function wp_next_scheduled( $hook ) { return 0; }
function proof( ...$facts ) { return 'proof'; }
function get_comment( $id ) {
	$parent = 'reply' === $id ? '5' : '0';
	$about  = [ 'comment_author_email' => "$id@shop.example", 'comment_parent' => $parent ];
	return (object) ( $about + COMMENT );
}
$wpdb = new class {
	public $prefix = 'wp_';
	public $queued = [];
	public function prepare( $query, ...$values ) { return $values; }
	public function query( $values ) { $this->queued[] = $values[3]; return 1; }
};
require $argv[1];
on_comment( 'review' );
on_comment( 'reply' );
echo json_encode( $wpdb->queued );
"""


async def test_a_reply_to_a_review_is_no_review(tmp_path: Path) -> None:
    harness = tmp_path / "reviews.php"
    harness.write_text(_REVIEWS)
    process = await asyncio.create_subprocess_exec(
        *(str(php_path()), "-n", str(harness), str(FOLDER / "events.php")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert json.loads(output) == ["review@shop.example"], output.decode()
