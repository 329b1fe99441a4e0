<?php
/** Sends one event to ltzd, signed with the brand's security key if the site has it. */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const EVENT_TARGET     = '/service-api/manual-event';
const SECONDS_TO_SEND  = 15; // ltzd waits up to five seconds for the mint's hash.
const SIGNED_FOR       = 'v1';

/** The security key, which wp-config.php may define instead of the settings page. */
function security_key() {
	return defined( 'LTZD_LOYALTY_SECURITY_KEY' ) ? (string) LTZD_LOYALTY_SECURITY_KEY : event_settings()['key'];
}

/** The headers of LTZ-HMAC v1; none without a key. */
function signature_headers( $key, $brand, $timestamp, $nonce, $body ) {
	if ( '' === $key ) {
		return [];
	}
	$target = (string) wp_parse_url( settings()['url'], PHP_URL_PATH ) . EVENT_TARGET;
	$text   = implode( "\n", [ SIGNED_FOR, $timestamp, $nonce, 'POST', $target, hash( 'sha256', $body ) ] );
	return [
		'X-LTZ-Brand-Id'  => $brand,
		'X-LTZ-Timestamp' => (string) $timestamp,
		'X-LTZ-Nonce'     => $nonce,
		'X-LTZ-Signature' => SIGNED_FOR . '=' . hash_hmac( 'sha256', $text, $key ),
	];
}

function event_body( $row ) {
	$event = [
		'brandId'   => settings()['brand'],
		'eventType' => $row['event_type'],
		'userEmail' => $row['email'],
		'domain'    => site_host(),
		'metadata'  => (object) json_decode( $row['metadata'], true ),
	];
	return (string) wp_json_encode( $event );
}

/** Whether ltzd takes events at all now: an event that is not sent has no unknown outcome. */
function is_ltzd_healthy() {
	$reply = wp_remote_get( settings()['url'] . '/service-api/health', with_limits( SECONDS_TO_LOOK ) );
	return 200 === (int) wp_remote_retrieve_response_code( $reply );
}

/** Returns the answer in the form of `decide`, without `is_others`. */
function send_event( $row, $now ) {
	$body    = event_body( $row );
	$headers = [ 'Content-Type' => 'application/json', 'Accept' => 'application/json' ];
	$headers = $headers + signature_headers( security_key(), settings()['brand'], $now, $row['nonce'], $body );
	$reply   = wp_remote_request( settings()['url'] . EVENT_TARGET, [ 'method' => 'POST', 'body' => $body, 'headers' => $headers ] + with_limits( SECONDS_TO_SEND ) );
	if ( is_wp_error( $reply ) ) {
		return [ 'status' => 0, 'body' => null, 'retry_after' => null, 'was_sent' => ! is_unconnected( $reply->get_error_message() ) ];
	}
	$seconds = wp_remote_retrieve_header( $reply, 'retry-after' );
	return [
		'status'      => (int) wp_remote_retrieve_response_code( $reply ),
		'body'        => json_decode( wp_remote_retrieve_body( $reply ), true ),
		'retry_after' => is_string( $seconds ) && ctype_digit( $seconds ) ? min( 86400, (int) $seconds ) : null,
		'was_sent'    => true,
	];
}

/** cURL's errors 5, 6, 7 and 60: no name, no connection, no trusted certificate. */
function is_unconnected( $message ) {
	return 1 === preg_match( '/\AcURL error (5|6|7|35|60):/', $message );
}
