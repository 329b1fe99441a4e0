<?php
/**
 * Plugin Name:       ltzd Loyalty
 * Description:       Check-ins, streaks, perks and leaderboards of ltzd, under this site's own REST API.
 * Version:           1.2.0
 * Requires at least: 5.6
 * Requires PHP:      7.4
 * License:           Apache-2.0
 * License URI:       https://www.apache.org/licenses/LICENSE-2.0
 * Text Domain:       ltzd-loyalty
 * Domain Path:       /languages
 * Update URI:        false
 *
 * This file forwards requests to ltzd with the headers that prove the visitor's log-in, and returns
 * ltzd's answers. While a request is in flight, ltzd requests this site's own users/me to learn who
 * the visitor is, so the site needs a second PHP worker. email.php reports to ltzd whether a member's
 * e-mail address is confirmed, and page.php is the shortcode [ltzd_loyalty].
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

// wp-config.php may define another value: that of `namespace` in the [site] section of ltzd's settings.
defined( 'LTZD_LOYALTY_NAMESPACE' ) || define( 'LTZD_LOYALTY_NAMESPACE', 'loyalty' );

// The same for `rest_prefix` there: the path at ltzd, whatever this site's own REST prefix is.
defined( 'LTZD_LOYALTY_REST_PREFIX' ) || define( 'LTZD_LOYALTY_REST_PREFIX', 'wp-json' );

const OPTION     = 'ltzd_loyalty';
const PAGE       = 'ltzd-loyalty';
const CAPABILITY = 'manage_options';

const SECONDS             = 10;
const SECONDS_TO_REDEEM   = 70; // ltzd answers once a block holds the redemption.
const SECONDS_TO_LOOK     = 5;
const LONGEST_ANSWER      = 1048576;
const LONGEST_COOKIES     = 4096;
const LONGEST_COOKIE_NAME = 100;

/** Forwarded routes: method, path, and the code and status of the error without an answer of ltzd. */
const ROUTES = [
	[ 'POST', 'checkin', 'checkin_failed', 400 ],
	[ 'POST', 'redeem', 'redeem_failed', 400 ],
	[ 'POST', 'claim-milestone', 'claim_failed', 400 ],
	[ 'POST', 'link', 'link_failed', 400 ],
	[ 'DELETE', 'link', 'link_failed', 400 ],
	[ 'GET', 'leaderboard', 'api_error', 500 ],
	[ 'GET', 'me', 'api_error', 500 ],
	[ 'GET', 'perks', 'api_error', 500 ],
];

/** Routes without a log-in: none is forwarded. */
const FOR_EVERYBODY = [ 'leaderboard', 'perks' ];

require_once __DIR__ . '/email.php';
require_once __DIR__ . '/page.php';
require_once __DIR__ . '/blocks.php';
require_once __DIR__ . '/connection.php';
require_once __DIR__ . '/messages.php';
require_once __DIR__ . '/manners.php';
require_once __DIR__ . '/events/events.php';

add_action( 'rest_api_init', __NAMESPACE__ . '\\register_routes' );
add_action( 'admin_init', __NAMESPACE__ . '\\register_settings' );
add_action( 'admin_menu', __NAMESPACE__ . '\\add_page' );
register_activation_hook( __FILE__, __NAMESPACE__ . '\\activate' );

function activate() {
	register_uninstall_hook( __FILE__, __NAMESPACE__ . '\\uninstall' );
}

/** In a network each site has its own settings and queue, and all have the users in common. */
function uninstall() {
	foreach ( is_multisite() ? get_sites( [ 'fields' => 'ids', 'number' => 0 ] ) : [] as $site ) {
		switch_to_blog( $site );
		forget_site();
		restore_current_blog();
	}
	is_multisite() || forget_site();
	forget_confirmations();
}

function forget_site() {
	delete_option( OPTION );
	forget_events();
}

/** @return array{url: string, brand: string, host: string} */
function settings() {
	$kept = get_option( OPTION, [] );
	return array_merge( [ 'url' => '', 'brand' => '', 'host' => '' ], is_array( $kept ) ? $kept : [] );
}

// --- The routes ---------------------------------------------------------------------------------

function register_routes() {
	foreach ( ROUTES as $route ) {
		register_rest_route(
			LTZD_LOYALTY_NAMESPACE . '/v1',
			'/' . $route[1],
			[
				'methods'             => $route[0],
				'callback'            => static function ( $request ) use ( $route ) {
					return answer( $route, $request );
				},
				// The callback decides: it answers 401 to a visitor who is not logged in, and ltzd
				// checks the log-in at this site's users/me. WordPress has refused a wrong nonce
				// before, and a cookie without a nonce is not forwarded, so no other site can act for
				// a visitor.
				'permission_callback' => '__return_true',
			]
		);
	}
}

/** Returns ltzd's answer, or the route's own error if ltzd gives none. */
function answer( $route, $request ) {
	nocache_headers();
	if ( '' === settings()['url'] ) {
		return refusal( 'not_configured', __( 'Loyalty is not set up on this site yet.', 'ltzd-loyalty' ), 500 );
	}
	$log_in = in_array( $route[1], FOR_EVERYBODY, true ) ? [] : log_in( $request );
	if ( ! in_array( $route[1], FOR_EVERYBODY, true ) && ( [] === $log_in || ! is_user_logged_in() ) ) {
		// All visitors of this site share one address at ltzd, which limits failed log-ins by
		// address: those of strangers must not use up the members' share.
		return refusal( 'not_logged_in', __( 'You are not logged in at this site.', 'ltzd-loyalty' ), 401 );
	}
	$reply = ask( $route, $request, $log_in );
	if ( is_wp_error( $reply ) ) {
		return no_answer( $route, $reply->get_error_message() );
	}
	$status = (int) wp_remote_retrieve_response_code( $reply );
	$body   = json_decode( wp_remote_retrieve_body( $reply ) );
	if ( ! is_answer( $status, $body ) ) {
		return no_answer( $route, "status $status without a body of its own" );
	}
	// An array outside, as WordPress expects, and objects inside: an empty object stays one.
	return with_headers( new \WP_REST_Response( (array) $body, $status ), $reply );
}

/** Copies the two headers of ltzd's answer that are for the visitor. */
function with_headers( $response, $reply ) {
	$nonce = nonce_in( wp_remote_retrieve_header( $reply, 'x-wp-nonce' ) );
	if ( '' !== $nonce ) {
		$response->header( 'X-WP-Nonce', $nonce );
	}
	$seconds = wp_remote_retrieve_header( $reply, 'retry-after' );
	if ( is_string( $seconds ) && preg_match( '/\A[0-9]{1,6}\z/', $seconds ) ) {
		$response->header( 'Retry-After', $seconds );
	}
	return $response;
}

/** Tells an answer of ltzd itself from one of a proxy or of another server. */
function is_answer( $status, $body ) {
	if ( ! is_object( $body ) ) {
		return false;
	}
	// 202 is a redemption that the chain has not decided yet.
	return in_array( $status, [ 200, 202 ], true ) || ( $status >= 400 && is_refusal( $body ) );
}

/** Members read `message`, and code and message are looked up in the translations: both are texts. */
function is_refusal( $body ) {
	return isset( $body->code, $body->message, $body->data->status ) && is_string( $body->code ) && is_string( $body->message );
}

function no_answer( $route, $reason ) {
	list( , $name, $code, $status ) = $route;
	error_log( "ltzd-loyalty: $name: $reason" );
	return refusal( $code, __( 'That did not work just now. Please try again in a moment.', 'ltzd-loyalty' ), $status );
}

function refusal( $code, $message, $status ) {
	return new \WP_Error( $code, $message, [ 'status' => $status ] );
}

// --- Requests to ltzd ---------------------------------------------------------------------------

function ask( $route, $request, $log_in ) {
	list( $method, $name ) = $route;
	$arguments             = with_limits( 'redeem' === $name ? SECONDS_TO_REDEEM : SECONDS );
	$headers               = [ 'Host' => site_host(), 'Accept' => 'application/json' ] + $log_in;
	if ( 'POST' === $method ) {
		$headers['Content-Type'] = content_type( $request );
		$arguments['body']       = $request->get_body();
	}
	$query     = query( $request->get_query_params() );
	$arguments = [ 'method' => $method, 'headers' => $headers ] + $arguments;
	return wp_remote_request( url_of( $name ) . ( '' === $query ? '' : "?$query" ), $arguments );
}

function with_limits( $seconds ) {
	return [
		'timeout'             => $seconds,
		'redirection'         => 0, // A redirect would send the log-in elsewhere.
		'httpversion'         => '1.1',
		'sslverify'           => true,
		'limit_response_size' => LONGEST_ANSWER,
	];
}

function url_of( $route ) {
	return settings()['url'] . '/' . LTZD_LOYALTY_REST_PREFIX . '/' . LTZD_LOYALTY_NAMESPACE . '/v1/' . $route;
}

/** ltzd finds the site, and so the brand, by this name. */
function site_host() {
	$host = settings()['host'];
	return '' === $host ? (string) wp_parse_url( home_url(), PHP_URL_HOST ) : $host;
}

/** Returns the headers that prove a log-in and no others; ltzd sends the same ones to users/me. */
function log_in( $request ) {
	$cookies = login_cookies( (string) $request->get_header( 'cookie' ) );
	$queries = $request->get_query_params();
	$nonce   = nonce_in( isset( $queries['_wpnonce'] ) ? $queries['_wpnonce'] : $request->get_header( 'x-wp-nonce' ) );
	if ( '' !== $cookies && '' !== $nonce && strlen( $cookies ) <= LONGEST_COOKIES ) {
		return [ 'Cookie' => $cookies, 'X-WP-Nonce' => $nonce ];
	}
	$basic = (string) $request->get_header( 'authorization' );
	if ( preg_match( '/\ABasic +([A-Za-z0-9+\/]{1,1024}={0,2})\z/i', $basic, $found ) ) {
		return [ 'Authorization' => "Basic $found[1]" ];
	}
	return [];
}

/** Reads the raw header, since PHP decodes the values in $_COOKIE and changes the names. */
function login_cookies( $header ) {
	$pattern = '/\Awordpress_(?:logged_in|sec)_[!-:<>-~]{0,' . LONGEST_COOKIE_NAME . '}=[!-:<-~]*\z/';
	return implode( '; ', preg_grep( $pattern, array_map( 'trim', explode( ';', $header ) ) ) );
}

function nonce_in( $given ) {
	return is_string( $given ) && preg_match( '/\A[0-9A-Za-z]{1,64}\z/', $given ) ? $given : '';
}

/** Always returns a type, since WordPress would take an empty body for a form. */
function content_type( $request ) {
	$given = (string) $request->get_header( 'content-type' );
	return preg_match( '/\A[!-~][ -~]{0,254}\z/', $given ) ? $given : 'application/json';
}

/** Returns the query without WordPress's own parameters, such as `rest_route` and `_wpnonce`. */
function query( $given ) {
	$is_ours = static function ( $name ) {
		return 'rest_route' !== $name && '_' !== substr( (string) $name, 0, 1 );
	};
	return http_build_query( array_filter( $given, $is_ours, ARRAY_FILTER_USE_KEY ), '', '&', PHP_QUERY_RFC3986 );
}

// --- Settings -> Loyalty ------------------------------------------------------------------------

function register_settings() {
	$about = [ 'type' => 'object', 'default' => [], 'sanitize_callback' => __NAMESPACE__ . '\\checked' ];
	register_setting( OPTION, OPTION, $about );
	add_settings_section( 'main', '', '__return_null', PAGE );
	foreach ( fields() as $name => list( $label ) ) {
		add_settings_field( $name, $label, __NAMESPACE__ . '\\show_field', PAGE, 'main', [ 'name' => $name, 'label_for' => OPTION . "_$name" ] );
	}
}

/** Each setting's label, help text and placeholder. */
function fields() {
	return [
		'url'   => [
			__( 'Address of ltzd', 'ltzd-loyalty' ),
			__( 'Starts with https, except on this machine.', 'ltzd-loyalty' ),
			'https://ltzd.example',
		],
		'brand' => [
			__( 'Brand id', 'ltzd-loyalty' ),
			__( '0x and 40 hexadecimal digits. Events are sent for this brand, and this page sees whether ltzd knows it.', 'ltzd-loyalty' ),
			'0x…',
		],
		'host'  => [
			__( 'Host name of this site', 'ltzd-loyalty' ),
			__( 'As the brand file lists it under hosts, if it is another than the one shown.', 'ltzd-loyalty' ),
			(string) wp_parse_url( home_url(), PHP_URL_HOST ),
		],
	];
}

/** Returns the settings to store: a malformed one keeps its old value, and the page says so. */
function checked( $given ) {
	$kept = settings();
	foreach ( is_array( $given ) ? array_intersect_key( $given, $kept ) : [] as $name => $value ) {
		$clean = is_string( $value ) ? clean( $name, trim( $value ) ) : null;
		if ( null === $clean ) {
			$label = fields()[ $name ][0];
			/* translators: %s: a setting's label */
			add_settings_error( OPTION, $name, sprintf( __( '%s: this cannot be used, and nothing was changed.', 'ltzd-loyalty' ), esc_html( $label ) ) );
			continue;
		}
		$kept[ $name ] = $clean;
	}
	return $kept;
}

/** Returns the normalised value, or null for a malformed one. */
function clean( $name, $value ) {
	if ( '' === $value ) {
		return '';
	}
	switch ( $name ) {
		case 'url':
			return clean_url( $value );
		case 'brand':
			return preg_match( '/\A0x[0-9a-f]{40}\z/i', $value ) ? strtolower( $value ) : null;
		default:
			$label = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
			$host  = strtolower( $value );
			return strlen( $host ) <= 253 && preg_match( "/\\A$label(?:\\.$label)*\\z/", $host ) ? $host : null;
	}
}

function clean_url( $value ) {
	// No user names, queries or fragments: an accepted URL can be read in one way only.
	$pattern = '#\A(https?)://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(?::[0-9]{1,5})?(?:/[a-z0-9._~/-]*)?\z#i';
	if ( ! preg_match( $pattern, $value, $found ) ) {
		return null;
	}
	$is_here = in_array( strtolower( $found[2] ), [ 'localhost', '127.0.0.1', '[::1]' ], true );
	return $is_here || 'https' === strtolower( $found[1] ) ? untrailingslashit( $value ) : null;
}

function add_page() {
	$title = __( 'Loyalty', 'ltzd-loyalty' );
	add_options_page( $title, $title, CAPABILITY, PAGE, __NAMESPACE__ . '\\show_page' );
}

function show_page() {
	if ( ! current_user_can( CAPABILITY ) ) {
		return;
	}
	echo '<div class="wrap"><h1>' . esc_html( get_admin_page_title() ) . '</h1>';
	foreach ( '' === settings()['url'] ? [] : state() as $line ) {
		echo '<p>' . esc_html( $line ) . '</p>';
	}
	echo '<form action="' . esc_url( admin_url( 'options.php' ) ) . '" method="post">';
	settings_fields( OPTION );
	do_settings_sections( PAGE );
	submit_button();
	echo '</form></div>';
}

function show_field( $arguments ) {
	$name                     = $arguments['name'];
	list( , $help, $example ) = fields()[ $name ];
	printf(
		'<input class="regular-text code" type="text" id="%1$s" name="%2$s" value="%3$s" placeholder="%4$s" aria-describedby="%1$s-help"><p class="description" id="%1$s-help">%5$s</p>',
		esc_attr( $arguments['label_for'] ),
		esc_attr( OPTION . "[$name]" ),
		esc_attr( settings()[ $name ] ),
		esc_attr( $example ),
		esc_html( $help )
	);
}
