"""The plugin in a real WordPress: the changes of address that a subscriber may and may not make.

Skipped where Debian's packages of a WordPress (scripts/test-tools) are missing.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ltzd.providers.host_sites import HostCredentials, HostSiteClient, guard_policy
from tests.support.sites.wordpress import PASSWORD, Session, WordPressSite

RICH = "rich@shop.example"
FIELD = "ltzd_email_confirmed"
ME = "/wp/v2/users/me"

_numbers = count(1)

Json = dict[str, Any]


@pytest_asyncio.fixture
async def core_alone(site: WordPressSite) -> AsyncIterator[WordPressSite]:
    """The site without the plugin, for one test."""
    await site.deactivate()
    yield site
    await site.activate()


@pytest_asyncio.fixture
async def member(site: WordPressSite) -> Session:
    return await a_member(site)


async def a_member(site: WordPressSite, role: str = "subscriber") -> Session:
    name = f"ann{next(_numbers)}"
    await site.register(name, f"{name}@site.example", role)
    return await site.log_in(name)


async def send_link(member: Session, **body: str) -> tuple[int, Json]:
    return await member.ask("POST", "/loyalty/v1/confirm-email", json=body)


async def newest_link(member: Session, address: str) -> str:
    return member.site.link_in(member.site.mails(address)[-1])


async def confirm(member: Session) -> str:
    """Asks for a link and opens it; returns the address."""
    email: str = (await member.me())["email"]
    assert await send_link(member) == (200, {"success": True, "confirmed": False})
    status, page = await member.open(await newest_link(member, email))
    assert (status, "Your e-mail address is confirmed." in page) == (200, True)
    return email


# --- changes of address -------------------------------------------------------------------------


async def test_core_alone_lets_a_subscriber_take_a_strangers_address(
    core_alone: WordPressSite,
) -> None:
    """The attack on WordPress without the plugin: it shows that the next tests can fail."""
    member = await a_member(core_alone)
    status, user = await member.ask("POST", ME, json={"email": "stranger@shop.example"})
    assert (status, user["email"]) == (200, "stranger@shop.example")
    user = await member.me()
    assert user["email"] == "stranger@shop.example"
    assert FIELD not in user


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("path", [ME, "/wp/v2/users/{id}", "/WP/v2/Users/{id}"])
async def test_a_subscriber_takes_no_address_over_rest(
    member: Session, method: str, path: str
) -> None:
    user = await member.me()
    path = path.format(id=user["id"])
    body = {"email": RICH, "first_name": "Rich"}
    for request in ({"json": body}, {"data": body}, {"params": body}):
        status, answer = await member.ask(method, path, **request)
        assert (status, answer["code"]) == (403, "ltzd_unconfirmed_email")
    again = await member.me()
    assert (again["email"], again["first_name"]) == (user["email"], "")


async def test_a_subscriber_takes_no_address_by_another_methods_name(member: Session) -> None:
    for params in ({"_method": "PUT"}, {"_method": "PATCH", "email": RICH}):
        status, answer = await member.ask("POST", ME, params=params, json={"email": RICH})
        assert (status, answer["code"]) == (403, "ltzd_unconfirmed_email")
    assert (await member.me())["email"] != RICH


async def test_a_subscriber_takes_no_address_with_an_application_password(
    member: Session,
) -> None:
    status, made = await member.ask("POST", f"{ME}/application-passwords", json={"name": "phone"})
    assert status == 201, made
    user = await member.me()
    basic = aiohttp.encode_basic_auth(user["username"], made["password"])
    url = f"{member.site.url}/wp-json{ME}"
    headers = {"Authorization": basic}
    async with member.site.http.post(url, json={"email": RICH}, headers=headers) as answer:
        assert (answer.status, (await answer.json())["code"]) == (403, "ltzd_unconfirmed_email")
    async with member.site.http.get(f"{url}?context=edit", headers=headers) as answer:
        again = await answer.json()
    assert (again["email"], again[FIELD]) == (user["email"], False)


async def test_a_subscriber_takes_no_address_over_xml_rpc(member: Session) -> None:
    user = await member.me()
    fields = "".join(
        f"<member><name>{name}</name><value><string>{RICH}</string></value></member>"
        for name in ("email", "user_email", "bio")
    )
    parameters = "".join(
        f"<param><value>{value}</value></param>"
        for value in (
            "<int>0</int>",
            f"<string>{user['username']}</string>",
            f"<string>{PASSWORD}</string>",
            f"<struct>{fields}</struct>",
        )
    )
    body = (
        f"<methodCall><methodName>wp.editProfile</methodName><params>{parameters}</params>"
        "</methodCall>"
    )
    async with member.site.http.post(f"{member.site.url}/xmlrpc.php", data=body) as answer:
        assert "<boolean>1</boolean>" in await answer.text()
    again = await member.me()
    assert (again["email"], again["description"]) == (user["email"], RICH)


async def test_another_plugins_form_writes_no_unconfirmed_address(member: Session) -> None:
    """Every change ends in wp_update_user: here it is called as the member, in a page."""
    user = await member.me()
    code = (
        "wp_set_current_user( (int) $argv[1] );"
        "$done = wp_update_user( [ 'ID' => (int) $argv[1], 'user_email' => $argv[2] ] );"
        "echo is_wp_error( $done ) ? $done->get_error_code() : 'done';"
    )
    assert await member.site.run(code, str(user["id"]), RICH) == "empty_data"
    assert (await member.me())["email"] == user["email"]


async def test_woocommerces_account_form_is_told_of_the_refusal(member: Session) -> None:
    """Without WooCommerce: its hook is called as its account form would call it."""
    user = await member.me()
    code = (
        "wp_set_current_user( (int) $argv[1] );"
        "$errors = new WP_Error(); $user = new stdClass();"
        "$user->ID = (int) $argv[1]; $user->user_email = $argv[2];"
        "do_action_ref_array( 'woocommerce_save_account_details_errors', [ &$errors, &$user ] );"
        "echo $errors->get_error_code(), '|', $errors->get_error_message();"
    )
    refused = await member.site.run(code, str(user["id"]), RICH)
    assert refused.startswith("ltzd_unconfirmed_email|An e-mail address is changed by a link")
    assert await member.site.run(code, str(user["id"]), user["email"]) == "|"


async def test_what_is_no_change_of_address_is_not_refused(member: Session) -> None:
    user = await member.me()
    body = {"email": user["email"], "first_name": "Ann"}
    status, changed = await member.ask("POST", ME, json=body)
    assert (status, changed["first_name"]) == (200, "Ann")


async def test_an_administrator_changes_an_address_which_is_unconfirmed_then(
    member: Session,
) -> None:
    await confirm(member)
    user = await member.me()
    assert user[FIELD] is True
    admin = await member.site.log_in("admin")
    address = f"new-{user['id']}@shop.example"
    path = f"/wp/v2/users/{user['id']}"

    status, changed = await admin.ask("POST", path, json={"email": address})

    assert (status, changed["email"]) == (200, address)
    again = await member.me()
    assert (again["email"], again[FIELD]) == (address, False)
    # Back to the confirmed address: that is a change as well.
    assert (await admin.ask("POST", path, json={"email": user["email"]}))[0] == 200
    assert (await member.me())[FIELD] is False


async def test_an_administrators_own_new_address_is_unconfirmed(site: WordPressSite) -> None:
    admin = await a_member(site, "administrator")
    await confirm(admin)
    status, user = await admin.ask("POST", ME, json={"email": "boss@shop.example"})
    assert (status, user["email"], user[FIELD]) == (200, "boss@shop.example", False)
    assert (await admin.me())[FIELD] is False


@pytest.mark.parametrize(
    "code",
    [
        "wp_update_user( [ 'ID' => (int) $argv[1], 'user_email' => $argv[2] ] );",
        (
            "global $wpdb; $wpdb->update( $wpdb->users, [ 'user_email' => $argv[2] ],"
            " [ 'ID' => (int) $argv[1] ] ); clean_user_cache( (int) $argv[1] );"
        ),
    ],
    ids=["wp-cli", "import into the table"],
)
async def test_an_address_that_comes_from_elsewhere_is_unconfirmed(
    member: Session, code: str
) -> None:
    await confirm(member)
    user = await member.me()
    await member.site.run(code, str(user["id"]), f"import-{user['id']}@shop.example")
    again = await member.me()
    assert (again["email"], again[FIELD]) == (f"import-{user['id']}@shop.example", False)


# --- the field ----------------------------------------------------------------------------------


async def test_the_field_is_a_members_own_and_only_for_editing(member: Session) -> None:
    user = await member.me()
    assert user[FIELD] is False
    for context in ("view", "embed"):
        _, shown = await member.ask("GET", f"{ME}?context={context}")
        assert FIELD not in shown
    admin = await member.site.log_in("admin")
    _, shown = await admin.ask("GET", f"/wp/v2/users/{user['id']}?context=edit")
    assert shown[FIELD] is None
    async with admin.site.http.get(
        f"{admin.site.url}/wp-json/wp/v2/users?context=edit&per_page=100", headers=admin.headers
    ) as answer:
        users = await answer.json()
    assert {each[FIELD] for each in users if each["slug"] != "admin"} == {None}


async def test_a_member_confirms_nothing_by_writing_the_field_or_the_meta(member: Session) -> None:
    user = await member.me()
    forged = {
        FIELD: True,
        "meta": {"_ltzd_confirmed_email": "1", FIELD: True, "_new_email": {"hash": "x"}},
    }
    await member.ask("POST", ME, json=forged)
    assert (await member.me())[FIELD] is False
    # Another plugin's form may write any user meta: without the secret it proves nothing.
    code = (
        "$forged = [ '1', md5( $argv[2] ), hash( 'sha256', $argv[2] ), [ 'proof' => 1 ] ];"
        "foreach ( $forged as $value ) {"
        " update_user_meta( (int) $argv[1], '_ltzd_confirmed_email', $value );"
        " wp_set_current_user( (int) $argv[1] );"
        " $request = new WP_REST_Request( 'GET', '/wp/v2/users/me' );"
        " $request->set_param( 'context', 'edit' );"
        " echo json_encode( rest_do_request( $request )->get_data()['ltzd_email_confirmed'] ); }"
    )
    assert await member.site.run(code, str(user["id"]), user["email"]) == "false" * 4


async def test_one_members_proof_is_nothing_at_another_member(member: Session) -> None:
    await confirm(member)
    other = await a_member(member.site)
    code = (
        "update_user_meta( (int) $argv[2], '_ltzd_confirmed_email',"
        " get_user_meta( (int) $argv[1], '_ltzd_confirmed_email', true ) );"
    )
    ids = [str((await each.me())["id"]) for each in (member, other)]
    await member.site.run(code, *ids)
    assert (await other.me())[FIELD] is False
    assert (await member.me())[FIELD] is True


# --- ltzd's reading, and the page ---------------------------------------------------------------


@pytest_asyncio.fixture
async def ltzd() -> AsyncIterator[HostSiteClient]:
    """ltzd's own client of host sites."""
    client = HostSiteClient(guard_policy(allow_loopback=True))
    yield client
    await client.close()


async def read_by(ltzd: HostSiteClient, member: Session) -> tuple[str | None, bool | None]:
    """Returns the address and its confirmation, as ltzd reads them by the member's session."""
    credentials = HostCredentials(member.headers["Cookie"], member.headers["X-WP-Nonce"])
    user = await ltzd.user_of(member.site.url, credentials)
    assert user is not None
    return user.email, user.email_confirmed


async def test_ltzd_reads_from_core_alone_whatever_a_member_has_typed(
    core_alone: WordPressSite, ltzd: HostSiteClient
) -> None:
    member = await a_member(core_alone)
    await member.ask("POST", ME, json={"email": "typed@shop.example"})
    assert await read_by(ltzd, member) == ("typed@shop.example", None)


async def test_ltzd_reads_that_nobody_has_confirmed_the_address(
    member: Session, ltzd: HostSiteClient
) -> None:
    user = await member.me()
    await member.ask("POST", ME, json={"email": RICH})
    assert await read_by(ltzd, member) == (user["email"], False)


async def test_ltzd_reads_that_a_member_has_confirmed_the_address(
    member: Session, ltzd: HostSiteClient
) -> None:
    email = await confirm(member)
    assert await read_by(ltzd, member) == (email, True)


async def test_the_shortcode_shows_a_member_his_page(member: Session) -> None:
    code = (
        "echo get_permalink( wp_insert_post( [ 'post_type' => 'page', 'post_title' => 'Rewards',"
        " 'post_status' => 'publish', 'post_content' => '[ltzd_loyalty]' ] ) );"
    )
    address = await member.site.run(code)
    status, page = await member.open(address)
    assert status == 200
    assert f'"root":"{member.site.url}/wp-json/loyalty/v1/"' in page
    script = re.search(r'src=[\'"]([^\'"]+/ltzd-loyalty/loyalty\.js[^\'"]*)', page)
    assert script is not None
    assert (await member.open(script[1]))[0] == 200
    assert "It is not confirmed yet." in page
    async with member.site.http.get(address) as answer:
        assert "Log in to see your rewards." in await answer.text()


# --- confirming ---------------------------------------------------------------------------------


async def test_a_mailed_link_confirms_once_and_for_its_member_alone(member: Session) -> None:
    email = (await member.me())["email"]
    assert (await send_link(member))[0] == 200
    link = await newest_link(member, email)
    other = await a_member(member.site)

    async with member.site.http.get(link, allow_redirects=False) as answer:
        assert answer.status == 302
        assert "/wp-login.php?redirect_to=" in answer.headers["Location"]
    assert (await other.open(link))[0] == 400
    assert [(await each.me())[FIELD] for each in (member, other)] == [False, False]

    assert (await member.open(link))[0] == 200
    assert (await member.me())[FIELD] is True
    assert (await member.open(link))[0] == 400
    assert (await send_link(member)) == (200, {"success": True, "confirmed": True})
    assert len(member.site.mails(email)) == 1


async def test_a_link_ends_with_its_day_and_with_the_next_link(member: Session) -> None:
    user = await member.me()
    await send_link(member)
    first = await newest_link(member, user["email"])
    earlier = (
        "$sent = get_user_meta( (int) $argv[1], '_ltzd_mailings', true );"
        "update_user_meta( (int) $argv[1], '_ltzd_mailings', array_map("
        " function ( $at ) { return $at - 61; }, $sent ) );"
    )
    await member.site.run(earlier, str(user["id"]))
    assert (await send_link(member))[0] == 200
    second = await newest_link(member, user["email"])
    assert first != second
    assert (await member.open(first))[0] == 400

    late = (
        "$kept = get_user_meta( (int) $argv[1], '_ltzd_mailed_link', true );"
        "$kept['ends'] = time() - 1;"
        "update_user_meta( (int) $argv[1], '_ltzd_mailed_link', $kept );"
    )
    await member.site.run(late, str(user["id"]))
    assert (await member.open(second))[0] == 400
    # A forged end does not make the link valid again.
    await member.site.run(late.replace("- 1", "+ 99"), str(user["id"]))
    assert (await member.open(second))[0] == 400
    assert (await member.me())[FIELD] is False


async def test_a_crowd_of_requests_sends_one_mail(member: Session) -> None:
    email = (await member.me())["email"]
    answers = await asyncio.gather(*(send_link(member) for _ in range(8)))
    assert sorted(status for status, _ in answers) == [200] + [429] * 7
    refusal = next(body for status, body in answers if status == 429)
    assert (refusal["code"], refusal["data"]) == ("rest_too_many_requests", {"status": 429})
    assert len(member.site.mails(email)) == 1


async def test_a_member_gets_five_links_a_day(member: Session) -> None:
    user = await member.me()
    code = (
        "update_user_meta( (int) $argv[1], '_ltzd_mailings',"
        " [ time() - 80000, time() - 400, time() - 300, time() - 200, time() - 100 ] );"
    )
    await member.site.run(code, str(user["id"]))
    url = f"{member.site.url}/wp-json/loyalty/v1/confirm-email"
    async with member.site.http.post(url, headers=member.headers) as answer:
        assert answer.status == 429
        assert 6000 < int(answer.headers["Retry-After"]) <= 6400
    assert member.site.mails(user["email"]) == []


@pytest.mark.parametrize("email", ["", "ann", "a@b@c.example", 7, ["a@b.example"], "x" * 100])
async def test_what_is_no_address_is_refused_and_nothing_is_mailed(
    member: Session, email: object
) -> None:
    path = "/loyalty/v1/confirm-email"
    status, answer = await member.ask("POST", path, json={"email": email})
    assert (status, answer["code"]) == (400, "rest_invalid_param")


async def test_a_stranger_has_no_link_mailed(site: WordPressSite) -> None:
    url = f"{site.url}/wp-json/loyalty/v1/confirm-email"
    member = await a_member(site)
    for headers in ({}, {"Cookie": member.headers["Cookie"]}):
        async with site.http.post(url, json={"email": RICH}, headers=headers) as answer:
            assert (answer.status, (await answer.json())["code"]) == (401, "not_logged_in")
    assert site.mails(RICH) == []


async def test_a_member_changes_his_address_by_a_link_mailed_to_the_new_one(
    member: Session,
) -> None:
    user = await member.me()
    address = f"mine-{user['id']}@shop.example"
    assert (await send_link(member, email=address))[0] == 200
    assert (await member.me())["email"] == user["email"]
    assert member.site.mails(user["email"]) == []

    assert (await member.open(await newest_link(member, address)))[0] == 200

    again = await member.me()
    assert (again["email"], again[FIELD]) == (address, True)


async def test_an_address_that_another_member_has_is_not_taken(member: Session) -> None:
    other = await a_member(member.site)
    address = (await other.me())["email"]
    user = await member.me()
    assert (await send_link(member, email=address))[0] == 200
    assert (await member.open(await newest_link(member, address)))[0] == 400
    assert (await member.me())["email"] == user["email"]


async def test_a_link_ends_when_the_address_is_changed_meanwhile(member: Session) -> None:
    user = await member.me()
    await send_link(member)
    link = await newest_link(member, user["email"])
    admin = await member.site.log_in("admin")
    path = f"/wp/v2/users/{user['id']}"
    await admin.ask("POST", path, json={"email": f"later-{user['id']}@shop.example"})
    assert (await member.open(link))[0] == 400
    again = await member.me()
    assert (again["email"], again[FIELD]) == (f"later-{user['id']}@shop.example", False)


async def profile_form(member: Session, email: str) -> tuple[int, str]:
    """Fills in WordPress's own profile page."""
    url = f"{member.site.url}/wp-admin/profile.php"
    _, page = await member.open(url)
    fields = {"email": email, "nickname": "ann", "action": "update", "from": "profile"}
    for name in ("_wpnonce", "user_id", "checkuser_id"):
        _, _, rest = page.partition(f'name="{name}"')
        _, _, rest = rest.partition('value="')
        fields[name] = rest.partition('"')[0]
    return await member.open(url, **fields)


async def test_wordpresss_own_link_changes_the_address_and_confirms_it(member: Session) -> None:
    user = await member.me()
    address = f"core-{user['id']}@shop.example"
    await profile_form(member, address)
    assert (await member.me())["email"] == user["email"]
    link = await newest_link(member, address)
    assert "profile.php?newuseremail=" in link

    # A guessed key changes nothing.
    page, _, _ = link.rpartition("=")
    for guess in ("", "0", "0" * 32):
        await member.open(f"{page}={guess}")
        status, _ = await member.ask("POST", f"{ME}?newuseremail={guess}", json={"email": address})
        assert status == 403
    assert (await member.me())["email"] == user["email"]

    assert (await member.open(link))[0] == 302
    again = await member.me()
    assert (again["email"], again[FIELD]) == (address, True)


async def test_a_password_that_was_set_by_mail_confirms_nothing(member: Session) -> None:
    """The reader of the mail need not be the holder of this user's application password."""
    user = await member.me()
    code = "retrieve_password( $argv[1] );"
    await member.site.run(code, user["username"])
    (mail,) = member.site.mails(user["email"])
    assert "action=rp" in mail
    code = (
        "$user = get_user_by( 'login', $argv[1] ); reset_password( $user, $argv[2] );"
        "echo json_encode( Ltzd\\Loyalty\\is_confirmed( get_userdata( $user->ID ) ) );"
    )
    assert await member.site.run(code, user["username"], PASSWORD) == "false"


async def test_another_plugin_may_say_that_it_has_confirmed_an_address(member: Session) -> None:
    user = await member.me()
    address = f"other-{user['id']}@shop.example"
    code = (
        "wp_set_current_user( (int) $argv[1] );"
        "add_filter( 'ltzd_loyalty_is_email_confirmed', function ( $is, $id, $email ) {"
        " return $email === $GLOBALS['argv'][2]; }, 10, 3 );"
        "wp_update_user( [ 'ID' => (int) $argv[1], 'user_email' => $argv[2] ] );"
    )
    await member.site.run(code, str(user["id"]), address)
    again = await member.me()
    assert (again["email"], again[FIELD]) == (address, True)


async def test_of_a_deleted_plugin_nothing_is_left(site: WordPressSite) -> None:
    member = await a_member(site)
    await confirm(member)
    await site.run("Ltzd\\Loyalty\\uninstall();")
    code = (
        'global $wpdb; echo $wpdb->get_var( "SELECT (SELECT count(*) FROM $wpdb->usermeta'
        " WHERE meta_key LIKE '%ltzd%') + (SELECT count(*) FROM $wpdb->options"
        " WHERE option_name LIKE '%ltzd%' AND option_name NOT LIKE '%active%')\" );"
    )
    assert await site.run(code) == "0"
