"""A shop's events, blocks and privacy tools in a real WordPress, with a fake ltzd.

WooCommerce's orders are stood in for by `_WOOCOMMERCE`: its functions and hooks as the plugin uses
them. Skipped where Debian's packages of a WordPress (scripts/test-tools) are missing.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from aiohttp import web

from ltzd.rules.request_signatures import signature
from tests.support.instances.instance import Instance
from tests.support.services.web_servers import served_at
from tests.support.sites.wordpress import WordPressSite

BRAND = "0x" + "ab" * 20
KEY = "ltzsk_test_0123456789abcdef"
EVENT_ID = "0f7f6b0e-3c1f-4b9e-8f43-2f8f0e1c5a{:02d}"

_WOOCOMMERCE = r"""<?php
final class Stand_In_Order {
	private $id;
	private $data;
	public function __construct( $id, $data ) { $this->id = $id; $this->data = $data; }
	public function get_id() { return $this->id; }
	public function get_customer_id() { return $this->data['customer'] ?? 0; }
	public function get_billing_email() { return $this->data['email'] ?? ''; }
	public function get_total() { return $this->data['total']; }
	public function get_total_refunded() { return $this->data['refunded'] ?? 0; }
	public function get_currency() { return $this->data['currency'] ?? 'USD'; }
	public function add_order_note( $text ) {
		$notes = get_option( "notes_$this->id", [] );
		update_option( "notes_$this->id", array_merge( $notes, [ $text ] ) );
	}
}
function wc_get_order( $id ) {
	$data = get_option( "order_$id" );
	return is_array( $data ) ? new Stand_In_Order( (int) $id, $data ) : false;
}
add_action( 'init', function () { register_post_type( 'product', [ 'public' => true ] ); } );
"""

_numbers = count(100)

Json = dict[str, Any]


@dataclass
class Ltzd:
    """A fake ltzd: answers events in turn, and holds the requests."""

    url: str = ""
    health: int = 200
    answers: list[tuple[int, Json] | None] = field(default_factory=list)
    requests: list[tuple[Json, str, bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        if request.path.endswith("/health"):
            return web.json_response({}, status=self.health)
        body = await request.read()
        self.requests.append((json.loads(body), request.headers["X-LTZ-Nonce"], body))
        timestamp = request.headers["X-LTZ-Timestamp"]
        made = signature(
            *(KEY, timestamp, request.headers["X-LTZ-Nonce"], "POST"),
            request.raw_path.encode(),
            body,
        )
        assert request.headers["X-LTZ-Signature"] == made
        assert request.headers["X-LTZ-Brand-Id"] == BRAND
        answer = self.answers.pop(0) if self.answers else recorded(len(self.requests))
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.json_response(answer[1], status=answer[0])

    @property
    def events(self) -> list[Json]:
        return [event for event, _, _ in self.requests]


def recorded(number: int) -> tuple[int, Json]:
    event_id = EVENT_ID.format(number % 100)
    return 200, {"success": True, "eventId": event_id, "rewardAmount": 84}


def duplicate(event_id: str) -> tuple[int, Json]:
    return 409, {"success": False, "error": "x", "details": {"existingEventId": event_id}}


class Shop:
    def __init__(self, site: WordPressSite, ltzd: Ltzd) -> None:
        self.site = site
        self.ltzd = ltzd

    async def php(self, code: str, *arguments: object) -> Any:
        """Runs code in WordPress with the arguments as `$given`; returns its JSON."""
        code = f"$given = json_decode( $argv[1], true ); {code}"
        output = await self.site.run(code, json.dumps(arguments))
        return json.loads(output) if output else None

    async def set(self, **settings: str) -> None:
        kept = {"purchase": "purchase", "key": KEY} | settings
        options = {"url": self.ltzd.url, "brand": BRAND, "host": "shop.example"}
        await self.php(
            "update_option( 'ltzd_loyalty', $given[0] );"
            "update_option( 'ltzd_loyalty_events', $given[1] );",
            options,
            kept,
        )

    async def order(self, **data: object) -> int:
        """Completes an order, as WooCommerce says it; a repetition is the same order."""
        order = next(_numbers)
        data = {"email": f"buyer{order}@shop.example", "total": "42.50"} | data
        await self.php(
            "update_option( 'order_' . $given[0], $given[1] );"
            "do_action( 'woocommerce_order_status_completed', $given[0], null );",
            order,
            data,
        )
        return order

    async def refund(self, order: int, amount: str) -> None:
        await self.php(
            "$data = get_option( 'order_' . $given[0] ); $data['refunded'] = $given[1];"
            "update_option( 'order_' . $given[0], $data );"
            "do_action( 'woocommerce_order_refunded', $given[0], 1 );",
            order,
            amount,
        )

    async def send(self) -> None:
        await self.php("do_action( 'ltzd_loyalty_send' );")

    async def row(self, order: int) -> Json:
        row: Json = await self.php(
            "echo json_encode( Ltzd\\Loyalty\\event_row( 'purchase', (string) $given[0] ) );", order
        )
        return row

    async def rows(self) -> list[Json]:
        rows: list[Json] = await self.php(
            "global $wpdb; echo json_encode( $wpdb->get_results("
            ' "SELECT * FROM {$wpdb->prefix}ltzd_events ORDER BY id" ) );'
        )
        return rows

    async def notes(self, order: int) -> list[str]:
        notes: list[str] = await self.php(
            "echo json_encode( get_option( 'notes_' . $given[0], [] ) );", order
        )
        return notes


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ltzd_server() -> AsyncIterator[Ltzd]:
    ltzd = Ltzd()
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return await ltzd.answer(request)

    application.router.add_route("*", "/{path:.*}", answer)
    async with served_at(application) as ltzd.url:
        yield ltzd


@pytest_asyncio.fixture
async def shop(site: WordPressSite, ltzd_server: Ltzd) -> Shop:
    (site.folder / "wp-content/mu-plugins/woocommerce.php").write_text(_WOOCOMMERCE)
    ltzd_server.health = 200
    ltzd_server.answers.clear()
    ltzd_server.requests.clear()
    shop = Shop(site, ltzd_server)
    await shop.set()
    await shop.php(
        "Ltzd\\Loyalty\\ensure_table(); global $wpdb;"
        ' $wpdb->query( "DELETE FROM {$wpdb->prefix}ltzd_events" );'
    )
    return shop


# --- orders -------------------------------------------------------------------------------------


async def test_a_completed_order_is_sent_once_and_its_address_forgotten(shop: Shop) -> None:
    order = await shop.order()
    await shop.php("do_action( 'woocommerce_order_status_completed', $given[0] );", order)
    assert await shop.php("echo json_encode( wp_next_scheduled( 'ltzd_loyalty_send' ) );") > 0

    await shop.send()
    await shop.send()

    (event,) = shop.ltzd.events
    assert event == {
        "brandId": BRAND,
        "eventType": "purchase",
        "userEmail": f"buyer{order}@shop.example",
        "domain": "shop.example",
        "metadata": {"amount": "42.50", "order": str(order)},
    }
    row = await shop.row(order)
    assert (row["state"], row["email"], row["event_id"]) == ("sent", None, EVENT_ID.format(1))
    assert await shop.notes(order) == [
        f"Loyalty: rewarded with 84 LTZ (event {EVENT_ID.format(1)})."
    ]
    await shop.php("do_action( 'woocommerce_order_status_completed', $given[0] );", order)
    await shop.send()
    assert len(shop.ltzd.events) == 1


async def test_a_customers_account_earns_and_another_currency_is_converted(shop: Shop) -> None:
    name = f"customer{next(_numbers)}"
    user = await shop.site.register(name, f"{name}@account.example")
    await shop.set(rate="1.1")
    await shop.order(customer=user, currency="EUR", total="10.00")
    await shop.send()
    (event,) = shop.ltzd.events
    assert (event["userEmail"], event["metadata"]["amount"]) == (f"{name}@account.example", "11.00")


async def test_without_an_exchange_rate_the_order_says_so(shop: Shop) -> None:
    order = await shop.order(currency="EUR")
    assert await shop.rows() == []
    (note,) = await shop.notes(order)
    assert "how many US dollars one EUR is worth" in note


async def test_a_refund_before_the_event_is_taken_off(shop: Shop) -> None:
    part, whole = await shop.order(), await shop.order()
    await shop.refund(part, "2.50")
    await shop.refund(whole, "42.50")
    await shop.send()
    (event,) = shop.ltzd.events
    assert event["metadata"] == {"amount": "40.00", "order": str(part)}
    assert (await shop.row(whole))["state"] == "cancelled"
    assert "is taken off the reward" in (await shop.notes(part))[0]


@pytest.mark.parametrize("status", ["cancelled", "failed"])
async def test_an_order_that_is_cancelled_before_the_event_earns_once_completed_again(
    shop: Shop, status: str
) -> None:
    order = await shop.order()
    await shop.php(f"do_action( 'woocommerce_order_status_{status}', $given[0] );", order)
    await shop.send()
    assert shop.ltzd.events == []
    assert await shop.notes(order) == ["Loyalty: not rewarded: the order was cancelled"]

    await shop.php("do_action( 'woocommerce_order_status_completed', $given[0] );", order)
    await shop.send()
    (event,) = shop.ltzd.events
    assert event["userEmail"] == f"buyer{order}@shop.example"


async def test_a_refund_after_the_event_is_noted(shop: Shop) -> None:
    order = await shop.order()
    await shop.send()
    await shop.refund(order, "42.50")
    await shop.send()
    assert len(shop.ltzd.events) == 1
    assert "takes no points back" in (await shop.notes(order))[-1]


async def test_a_lost_answer_is_cleared_up_within_the_window_of_duplicates(shop: Shop) -> None:
    shop.ltzd.answers = [None, duplicate(EVENT_ID.format(77))]
    order = await shop.order()
    await shop.send()
    assert [event["metadata"]["order"] for event in shop.ltzd.events] == [str(order)] * 2
    assert len({nonce for _, nonce, _ in shop.ltzd.requests}) == 1
    row = await shop.row(order)
    assert (row["state"], row["event_id"]) == ("sent", EVENT_ID.format(77))


async def test_a_duplicate_of_the_same_customers_other_order_waits(shop: Shop) -> None:
    shop.ltzd.answers = [recorded(5), duplicate(EVENT_ID.format(5))]
    first = await shop.order(email="twice@shop.example")
    second = await shop.order(email="twice@shop.example")
    await shop.send()
    assert (await shop.row(first))["state"] == "sent"
    assert (await shop.row(second))["state"] == "waiting"


async def test_an_order_whose_outcome_stays_unknown_is_left_to_its_owner(shop: Shop) -> None:
    order = await shop.order()
    await shop.php(
        "global $wpdb; $wpdb->update( $wpdb->prefix . 'ltzd_events',"
        " [ 'state' => 'sending', 'started_at' => time() - 400, 'due_at' => time() - 100 ],"
        " [ 'subject' => (string) $given[0] ] );",
        order,
    )
    await shop.send()
    assert shop.ltzd.events == []
    assert (await shop.row(order))["state"] == "unclear"
    assert "it is not sent again by itself" in (await shop.notes(order))[0]

    resend = (
        "wp_set_current_user( $given[1] ); $order = wc_get_order( $given[0] );"
        "$actions = apply_filters( 'woocommerce_order_actions', [], $order );"
        "echo json_encode( array_keys( $actions ) );"
        "do_action( 'woocommerce_order_action_ltzd_loyalty_resend', $order );"
    )
    assert await shop.php(resend, order, 0) == ["ltzd_loyalty_resend"]
    assert (await shop.row(order))["state"] == "unclear", "only who edits orders sends again"
    await shop.php("get_role( 'administrator' )->add_cap( 'edit_shop_orders' );")
    await shop.php(resend, order, 1)
    await shop.send()
    assert (await shop.row(order))["state"] == "sent"


async def test_while_ltzd_is_away_nothing_is_tried(shop: Shop) -> None:
    order = await shop.order()
    shop.ltzd.health = 503
    await shop.send()
    assert shop.ltzd.events == []
    row = await shop.row(order)
    assert (row["state"], row["attempts"]) == ("waiting", 0)
    shop.ltzd.health = 200
    await shop.send()
    assert (await shop.row(order))["state"] == "sent"


async def test_runs_at_once_send_each_order_once(shop: Shop) -> None:
    orders = [await shop.order() for _ in range(3)]
    await asyncio.gather(*(shop.send() for _ in range(4)))
    sent = [event["metadata"]["order"] for event in shop.ltzd.events]
    assert sorted(sent) == [str(order) for order in orders]


_ACTION_SCHEDULER = r"""
function as_schedule_single_action( $at, $hook, $arguments, $group ) {
	$planned = get_option( 'planned', [] );
	update_option( 'planned', array_merge( $planned, [ [ $at, $hook, $group ] ] ) );
}
function as_next_scheduled_action( $hook, $arguments, $group ) {
	$planned = get_option( 'planned', [] );
	return [] === $planned ? false : $planned[0][0];
}
function as_unschedule_all_actions( $hook, $arguments, $group ) { delete_option( 'planned' ); }
"""


async def test_action_scheduler_plans_the_runs_where_it_is_there(shop: Shop) -> None:
    code = (
        "wp_clear_scheduled_hook( 'ltzd_loyalty_send' );"
        "Ltzd\\Loyalty\\schedule_sending( 2000000500 );"
        "Ltzd\\Loyalty\\schedule_sending( 2000000100 );"
        "Ltzd\\Loyalty\\schedule_sending( 2000000900 );"
        "$planned = get_option( 'planned' ); Ltzd\\Loyalty\\end_schedule();"
        "echo json_encode( [ $planned, get_option( 'planned' ),"
        " wp_next_scheduled( 'ltzd_loyalty_send' ) ] );"
    )
    output = await shop.site.run(code, first=_ACTION_SCHEDULER)
    run = [2000000100, "ltzd_loyalty_send", "ltzd-loyalty"]
    assert json.loads(output) == [[run], False, False]


async def test_wp_cron_plans_the_earliest_run_elsewhere(shop: Shop) -> None:
    planned = await shop.php(
        "foreach ( [ 500, 100, 900 ] as $more ) {"
        " Ltzd\\Loyalty\\schedule_sending( 2000000000 + $more ); }"
        "echo json_encode( wp_next_scheduled( 'ltzd_loyalty_send' ) );"
        "wp_clear_scheduled_hook( 'ltzd_loyalty_send' );"
    )
    assert planned <= 2000000100


async def test_a_live_ltzd_rewards_an_order_once(shop: Shop, one_instance: Instance) -> None:
    brand = one_instance.dev_json["brand"]
    await shop.set(key=brand["securityKey"])
    await shop.php(
        "update_option( 'ltzd_loyalty', $given[0] );",
        {"url": one_instance.base_url, "brand": brand["brandId"], "host": brand["domain"]},
    )
    order = await shop.order(email=f"{uuid4().hex}@shop.example")
    await shop.send()
    row = await shop.row(order)
    assert (row["state"], row["reward"]) == ("sent", 85), row
    assert (await one_instance.event(row["event_id"]))["rewardAmount"] == 85

    # The process had died before it wrote down the outcome, and runs again within the window.
    await shop.php(
        "global $wpdb; $wpdb->update( $wpdb->prefix . 'ltzd_events', [ 'state' => 'waiting',"
        " 'email' => $given[1], 'event_id' => null, 'unclear_since' => time(), 'due_at' => 0 ],"
        " [ 'subject' => (string) $given[0] ] );",
        order,
        await email_of(shop, order),
    )
    await shop.send()
    again = await shop.row(order)
    assert (again["state"], again["event_id"]) == ("sent", row["event_id"])
    await one_instance.minted(row["event_id"])


async def email_of(shop: Shop, order: int) -> str:
    email: str = await shop.php(
        "echo json_encode( get_option( 'order_' . $given[0] )['email'] );", order
    )
    return email


# --- people -------------------------------------------------------------------------------------


async def test_registrations_reviews_and_readers_are_events_where_switched_on(shop: Shop) -> None:
    await shop.set(
        registration="account_creation", review="review_submission", newsletter="newsletter_signup"
    )
    name = f"new{next(_numbers)}"
    user = await shop.site.register(name, f"{name}@people.example")
    await shop.php(
        "$post = wp_insert_post( [ 'post_type' => 'product', 'post_title' => 'Mug',"
        " 'post_status' => 'publish' ] );"
        "$review = [ 'comment_post_ID' => $post, 'comment_author_email' => $given[0],"
        " 'comment_author' => 'x', 'comment_content' => 'Good.', 'comment_author_url' => '' ];"
        "$id = wp_insert_comment( $review + [ 'comment_approved' => 0 ] );"
        "do_action( 'comment_post', $id, 0, $review );"
        "wp_set_comment_status( $id, 'approve' ); wp_set_comment_status( $id, 'approve' );"
        "do_action( 'ltzd_loyalty_newsletter_signup', $given[1] );"
        "do_action( 'ltzd_loyalty_newsletter_signup', strtoupper( $given[1] ) );"
        "do_action( 'mc4wp_form_subscribed', new stdClass(), $given[2], [], [] );"
        "do_action( 'newsletter_user_confirmed', (object) [ 'email' => 'no address' ] );",
        f"reviewer-{name}@people.example",
        f"reader-{name}@people.example",
        f"other-{name}@people.example",
    )
    await shop.send()
    sent = [(event["eventType"], event["userEmail"]) for event in shop.ltzd.events]
    assert sorted(sent) == sorted(
        [
            ("account_creation", f"{name}@people.example"),
            ("review_submission", f"reviewer-{name}@people.example"),
            ("newsletter_signup", f"reader-{name}@people.example"),
            ("newsletter_signup", f"other-{name}@people.example"),
        ]
    )
    assert user > 0


async def test_nothing_is_queued_that_is_not_switched_on(shop: Shop) -> None:
    await shop.set(purchase="")
    await shop.order()
    await shop.site.register(f"off{next(_numbers)}", f"off{next(_numbers)}@people.example")
    await shop.php("do_action( 'ltzd_loyalty_newsletter_signup', 'reader@people.example' );")
    assert await shop.rows() == []


async def test_a_person_is_exported_and_erased(shop: Shop) -> None:
    order = await shop.order()
    waiting = await shop.order(email=f"buyer{order}@shop.example")
    shop.ltzd.answers = [recorded(3), duplicate(EVENT_ID.format(3))]
    await shop.send()
    email = f"Buyer{order}@shop.example"
    export = await shop.php(
        "echo json_encode( apply_filters( 'wp_privacy_personal_data_exporters', [] )"
        "['ltzd-loyalty']['callback']( $given[0], 1 ) );",
        email,
    )
    assert export["done"] is True
    assert len(export["data"]) == 2
    values = {item["name"]: item["value"] for item in export["data"][0]["data"]}
    assert (values["Event"], values["State"]) == ("purchase", "sent")

    erase = (
        "echo json_encode( apply_filters( 'wp_privacy_personal_data_erasers', [] )"
        "['ltzd-loyalty']['callback']( $given[0], 1 ) );"
    )
    erased = await shop.php(erase, email)
    assert (erased["items_removed"], erased["items_retained"], erased["done"]) == (True, True, True)
    again = await shop.php(erase, email)
    assert (again["items_removed"], again["items_retained"]) == (False, False)
    for row in await shop.rows():
        assert (row["email"], row["email_key"], row["metadata"]) == (None, "", "{}")
    assert (await shop.row(waiting))["state"] == "cancelled"
    await shop.php("do_action( 'woocommerce_order_status_completed', $given[0] );", order)
    assert len(await shop.rows()) == 2, "an erased order is not rewarded again"


async def test_a_deleted_users_waiting_events_are_cancelled(shop: Shop) -> None:
    await shop.set(registration="account_creation")
    name = f"gone{next(_numbers)}"
    user = await shop.site.register(name, f"{name}@people.example")
    await shop.php(
        "require_once ABSPATH . 'wp-admin/includes/user.php'; wp_delete_user( $given[0] );", user
    )
    await shop.send()
    assert shop.ltzd.events == []
    (row,) = await shop.rows()
    assert (row["state"], row["email"]) == ("cancelled", None)


# --- pages --------------------------------------------------------------------------------------


async def test_answers_to_members_are_stored_by_no_cache(shop: Shop) -> None:
    name = f"reader{next(_numbers)}"
    await shop.site.register(name, f"{name}@people.example")
    member = await shop.site.log_in(name)
    for path in ("/loyalty/v1/me", "/loyalty/v1/confirm-email", "/wp/v2/users/me"):
        method = "POST" if path.endswith("email") else "GET"
        url = f"{shop.site.url}/wp-json{path}"
        async with shop.site.http.request(method, url, headers=member.headers) as answer:
            await answer.read()
            (value,) = answer.headers.getall("Cache-Control")
            assert "no-store" in value.split(", "), path
    page = await shop.php(
        "echo json_encode( get_permalink( wp_insert_post( [ 'post_type' => 'page',"
        " 'post_status' => 'publish', 'post_title' => 'x', 'post_content' => $given[0] ] ) ) );",
        "<!-- wp:ltzd-loyalty/points /-->[ltzd_streak]",
    )
    async with shop.site.http.get(page, headers={"Cookie": member.headers["Cookie"]}) as answer:
        text = await answer.text()
        assert "no-store" in answer.headers["Cache-Control"]
    assert 'data-ltzd-block="points"' in text
    assert 'data-ltzd-block="streak"' in text
    assert text.count("ltzdLoyaltyPage = ") == 1


async def test_the_site_speaks_german(shop: Shop) -> None:
    shown = await shop.php(
        "add_filter( 'locale', function () { return 'de_DE'; } );"
        "unload_textdomain( 'ltzd-loyalty' ); Ltzd\\Loyalty\\load_translations();"
        "echo json_encode( [ do_blocks( '<!-- wp:ltzd-loyalty/streak /-->' ),"
        " Ltzd\\Loyalty\\translated( 'redeem_failed', $given[0] ) ] );",
        "This perk costs 12.5 LTZ, but your wallet holds 3 LTZ.",
    )
    assert "Melden Sie sich an, um Ihre Belohnungen zu sehen." in shown[0]
    assert shown[1] == "Diese Prämie kostet 12.5 LTZ, aber in Ihrem Wallet sind 3 LTZ."


async def test_the_tracker_is_loaded_where_it_is_switched_on(shop: Shop) -> None:
    code = (
        "ob_start(); do_action( 'wp_enqueue_scripts' ); wp_print_scripts( 'ltzd-tracker' );"
        "echo json_encode( ob_get_clean() );"
    )
    assert await shop.php(code) == ""
    await shop.set(tracker="yes")
    tag = await shop.php(code)
    assert f"src='{shop.ltzd.url}/ltzd.js'" in tag.replace('"', "'")
    assert f'data-brand="{BRAND}" data-domain="shop.example"' in tag
    assert "data-email" not in tag
    assert 'data-email="admin@site.example"' in await shop.php(f"wp_set_current_user( 1 ); {code}")


async def test_the_list_of_plugins_leads_to_the_settings_for_who_may_change_them(
    shop: Shop,
) -> None:
    code = (
        "wp_set_current_user( $given[0] ); echo json_encode( apply_filters("
        " 'plugin_action_links_ltzd-loyalty/ltzd-loyalty.php', [] ) );"
    )
    (link,) = await shop.php(code, 1)
    assert "options-general.php?page=ltzd-loyalty" in link
    assert await shop.php(code, 0) == []


async def test_a_malformed_setting_keeps_the_old_one_and_the_key_is_not_shown(shop: Shop) -> None:
    code = (
        "require_once ABSPATH . 'wp-admin/includes/template.php';"
        "Ltzd\\Loyalty\\register_event_settings();"
        "echo json_encode( Ltzd\\Loyalty\\checked_events( $given[0] ) );"
    )
    given = {"purchase": "a b", "rate": "0.0", "key": "", "tracker": "no", "review": " r_1 "}
    kept = await shop.php(code, given)
    assert kept["purchase"] == "purchase"
    assert (kept["rate"], kept["tracker"], kept["key"], kept["review"]) == ("", "", KEY, "r_1")
    assert (await shop.php(code, {"key": "-"}))["key"] == ""
    page = await shop.site.run(
        "require_once ABSPATH . 'wp-admin/includes/template.php'; do_action( 'admin_init' );"
        "ob_start(); do_settings_fields( 'ltzd-loyalty', 'events' ); echo ob_get_clean();"
    )
    assert KEY not in page
    assert 'type="password"' in page


async def test_a_deleted_plugin_leaves_no_table_and_no_schedule(shop: Shop) -> None:
    await shop.order()
    await shop.php("Ltzd\\Loyalty\\keep_schedule();")
    assert await shop.php(
        "Ltzd\\Loyalty\\uninstall(); global $wpdb; echo json_encode( ["
        " $wpdb->get_var( \"SHOW TABLES LIKE '%ltzd%'\" ),"
        " wp_next_scheduled( 'ltzd_loyalty_send' ), wp_next_scheduled( 'ltzd_loyalty_sweep' ),"
        " get_option( 'ltzd_loyalty_events' ), get_option( 'ltzd_loyalty_table' ) ] );"
    ) == [None, False, False, False, False]
