<?php
/**
 * The tests of the settings page: what members will meet at ltzd, and what to do about each failure.
 *
 * The log-in of the administrator who reads the page goes to ltzd and back, as a member's does, so
 * the administrator becomes a member of the brand.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const SECONDS_OF_LTZD   = 4.5; // ltzd waits five seconds for this site.
const CLOCK_SECONDS     = 60;
const USUAL_REST_PREFIX = 'wp-json';

/** Returns lines for the settings page, the most important one first. */
function state() {
	$headers = [ 'Host' => site_host(), 'Accept' => 'application/json' ];
	$url     = url_of( 'leaderboard' ) . '?limit=1';
	$board   = wp_remote_get( $url, [ 'headers' => $headers ] + with_limits( SECONDS_TO_LOOK ) );
	if ( is_wp_error( $board ) ) {
		/* translators: 1: the error message of PHP or cURL, 2: a URL */
		return [ sprintf( __( 'ltzd cannot be reached: %1$s. Is the address right, and does a firewall let this server ask %2$s?', 'ltzd-loyalty' ), $board->get_error_message(), $url ) ];
	}
	$is_known = 200 === (int) wp_remote_retrieve_response_code( $board );
	/* translators: %s: a host name */
	$known = __( 'ltzd serves %s.', 'ltzd-loyalty' );
	/* translators: %s: a host name */
	$unknown = __( 'ltzd does not serve %s: is it listed under hosts in the [site] section of the brand file?', 'ltzd-loyalty' );
	$lines   = array_merge( [ sprintf( $is_known ? $known : $unknown, site_host() ) ], brand_state() );
	if ( $is_known ) {
		$lines = array_merge( $lines, log_in_state() );
	}
	return array_merge( $lines, clock_state( wp_remote_retrieve_header( $board, 'date' ) ), site_state() );
}

function brand_state() {
	$brand = settings()['brand'];
	if ( '' === $brand ) {
		return [];
	}
	$found = wp_remote_get( settings()['url'] . '/service-api/event-config?brandId=' . rawurlencode( $brand ), with_limits( SECONDS_TO_LOOK ) );
	return [
		200 === (int) wp_remote_retrieve_response_code( $found )
			? __( 'ltzd knows the brand.', 'ltzd-loyalty' )
			: __( 'ltzd does not know the brand.', 'ltzd-loyalty' ),
	];
}

/** Sends the reader's own log-in to ltzd, which asks this site's users/me with it. */
function log_in_state() {
	$cookies = login_cookies( isset( $_SERVER['HTTP_COOKIE'] ) ? wp_unslash( $_SERVER['HTTP_COOKIE'] ) : '' );
	if ( '' === $cookies ) {
		return [];
	}
	$headers = [
		'Host'       => site_host(),
		'Accept'     => 'application/json',
		'Cookie'     => $cookies,
		'X-WP-Nonce' => wp_create_nonce( 'wp_rest' ),
	];
	$began   = microtime( true );
	$reply   = wp_remote_get( url_of( 'me' ), [ 'headers' => $headers ] + with_limits( SECONDS ) );
	$seconds = microtime( true ) - $began;
	$status  = (int) wp_remote_retrieve_response_code( $reply );
	if ( 200 === $status ) {
		return [ __( 'ltzd asked this site who you are, and the site told it.', 'ltzd-loyalty' ) ];
	}
	$asked = home_url( '/' . rest_get_url_prefix() . '/wp/v2/users/me' );
	if ( 401 === $status ) {
		/* translators: %s: a URL */
		return [ sprintf( __( 'ltzd asked a site who you are, and the site did not know you. ltzd must ask %s: compare url and rest_prefix in the brand file, and look for a security plugin that refuses log-ins over the REST API.', 'ltzd-loyalty' ), $asked ) ];
	}
	if ( $seconds >= SECONDS_OF_LTZD ) {
		/* translators: %s: a URL */
		return [ sprintf( __( 'ltzd cannot tell who you are: this site did not answer within five seconds. Give PHP a second worker, and see that ltzd can reach %s.', 'ltzd-loyalty' ), $asked ) ];
	}
	/* translators: 1: a URL, 2: an HTTP status */
	return [ sprintf( __( 'ltzd cannot tell who you are (status %2$d). ltzd must reach %1$s by https: look for a firewall, a log-in page in front of the site, or another path in the brand file.', 'ltzd-loyalty' ), $asked, $status ) ];
}

/** Signed events name the time at which they were sent, and ltzd refuses old ones. */
function clock_state( $date ) {
	$time = is_string( $date ) ? strtotime( $date ) : false;
	if ( false === $time || abs( time() - $time ) <= CLOCK_SECONDS ) {
		return [];
	}
	/* translators: %d: a number of seconds */
	return [ sprintf( __( 'The clocks of this server and of ltzd differ by %d seconds: signed events will be refused. Let the server set its clock by NTP.', 'ltzd-loyalty' ), abs( time() - $time ) ) ];
}

/** Returns lines about this site alone. */
function site_state() {
	$lines = [];
	if ( '' === (string) get_option( 'permalink_structure', '' ) ) {
		$lines[] = __( 'Links are plain, so ltzd cannot find the REST API: choose another structure under Settings → Permalinks.', 'ltzd-loyalty' );
	}
	$folder = (string) wp_parse_url( home_url(), PHP_URL_PATH );
	if ( '' !== trim( $folder, '/' ) ) {
		/* translators: %s: a line of a settings file */
		$lines[] = sprintf( __( 'This site is in a folder, so the [site] section of the brand file needs: %s', 'ltzd-loyalty' ), 'url = "' . untrailingslashit( home_url() ) . '"' );
	}
	if ( USUAL_REST_PREFIX !== rest_get_url_prefix() ) {
		/* translators: %s: a line of a settings file */
		$lines[] = sprintf( __( 'The REST API has a path of its own, so the [site] section of the brand file needs: %s', 'ltzd-loyalty' ), 'rest_prefix = "' . rest_get_url_prefix() . '"' );
	}
	if ( ! wp_is_application_passwords_available() ) {
		$lines[] = __( 'Application passwords are off: they need https, or WP_ENVIRONMENT_TYPE "local" in wp-config.php. Members who log in with the browser do not need them.', 'ltzd-loyalty' );
	}
	$lines[] = __( 'Members confirm their e-mail address with this plugin; leave verified_emails in the brand file unset.', 'ltzd-loyalty' );
	return $lines;
}
