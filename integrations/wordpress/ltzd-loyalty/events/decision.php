<?php
/**
 * What becomes of a queued event after an attempt to send it, decided without I/O.
 *
 *     waiting -> sending -> sent, refused or unclear
 *        ^----------'
 *
 * ltzd has no key that makes an event unique for ever. It answers 409 to the same event of the same
 * person for a minute, so an attempt whose outcome is unknown is repeated within that minute only.
 * After it the event is unclear, and a person decides: an event is never rewarded twice.
 *
 * Times are Unix seconds.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const WAITING   = 'waiting';
const SENDING   = 'sending';
const SENT      = 'sent';
const REFUSED   = 'refused';
const UNCLEAR   = 'unclear';
const CANCELLED = 'cancelled';

const SECONDS_TO_REPEAT  = 45;     // Less than ltzd's shortest window for duplicates, 60 seconds.
const SECONDS_OF_WINDOW  = 70;     // After this a duplicate of another order is over.
const SECONDS_TO_KEEP    = 259200; // An event that ltzd does not take for three days is given up.
const SECONDS_TO_CORRECT = 3600;   // A wrong key or domain waits for its correction.
const LONGEST_PAUSE      = 3600;

/**
 * Returns the row's changes.
 *
 * `$answer` has `status` (0 without an answer), `body` (an array or null), `retry_after` (seconds or
 * null), `was_sent` (false if no byte can have reached ltzd), and `is_others` (whether the event that
 * a 409 names belongs to another row).
 */
function decide( $row, $answer, $now ) {
	$status     = $answer['status'];
	$body       = is_array( $answer['body'] ) ? $answer['body'] : [];
	$error      = isset( $body['error'] ) && is_string( $body['error'] ) ? $body['error'] : '';
	$details    = isset( $body['details'] ) && is_array( $body['details'] ) ? $body['details'] : [];
	$is_of_ltzd = isset( $body['success'] );
	$is_unclear = null !== $row['unclear_since'];

	if ( in_array( $status, [ 200, 202 ], true ) && ! empty( $body['success'] ) && isset( $body['eventId'] ) ) {
		return settled( SENT, $now, [ 'event_id' => (string) $body['eventId'], 'reward' => isset( $body['rewardAmount'] ) ? (int) $body['rewardAmount'] : 0 ] );
	}
	if ( 401 === $status && false !== strpos( $error, 'Nonce was used' ) ) {
		return settled( SENT, $now, [] ); // The nonce is the row's own: an earlier attempt was recorded.
	}
	if ( 409 === $status && isset( $details['existingEventId'] ) ) {
		return $is_unclear && ! $answer['is_others']
			? settled( SENT, $now, [ 'event_id' => (string) $details['existingEventId'] ] )
			: waiting( $row, $now, $now + SECONDS_OF_WINDOW, 'duplicate' );
	}
	if ( ! $answer['was_sent'] ) {
		return waiting( $row, $now, $now + pause( $row['attempts'] ), 'unreachable' );
	}
	if ( ! $is_of_ltzd || $status < 400 || $status >= 500 && 503 !== $status ) {
		return lost( $row, $now );
	}
	if ( 503 === $status || is_temporary( $status, $details ) ) {
		return waiting( $row, $now, $now + max( 1, (int) $answer['retry_after'], pause( $row['attempts'] ) ), $error );
	}
	if ( in_array( $status, [ 401, 403 ], true ) ) {
		return waiting( $row, $now, $now + SECONDS_TO_CORRECT, $error );
	}
	return settled( $is_unclear ? UNCLEAR : REFUSED, $now, [ 'note' => $error ] );
}

/** The process that sent the event has ended without an outcome. */
function abandoned( $row, $now ) {
	return settled( UNCLEAR, $now, [ 'note' => 'the process ended' ] );
}

/** An attempt without a usable answer: repeated at once within the window, and then unclear. */
function lost( $row, $now ) {
	$since = null === $row['unclear_since'] ? $row['started_at'] : $row['unclear_since'];
	return $now - $since <= SECONDS_TO_REPEAT
		? [ 'state' => WAITING, 'due_at' => $now + 1, 'unclear_since' => $since, 'note' => 'no answer' ]
		: settled( UNCLEAR, $now, [ 'note' => 'no answer' ] );
}

function waiting( $row, $now, $due, $note ) {
	if ( null !== $row['unclear_since'] && $due - $row['unclear_since'] > SECONDS_TO_REPEAT ) {
		return settled( UNCLEAR, $now, [ 'note' => $note ] );
	}
	if ( $now - $row['created_at'] > SECONDS_TO_KEEP ) {
		return settled( REFUSED, $now, [ 'note' => $note ] );
	}
	return [ 'state' => WAITING, 'due_at' => $due, 'note' => $note ];
}

/** The address is needed no longer. */
function settled( $state, $now, $more ) {
	return [ 'state' => $state, 'due_at' => $now, 'email' => null ] + $more;
}

/** Of the 429 a cooldown and a maximum are ltzd's last word; a limit or a budget ends. */
function is_temporary( $status, $details ) {
	$reason = isset( $details['reason'] ) ? $details['reason'] : '';
	return 429 === $status && ! in_array( $reason, [ 'cooldown', 'cooldown_not_expired', 'max_claims_reached' ], true );
}

function pause( $attempts ) {
	return min( LONGEST_PAUSE, 60 * ( 1 << min( 6, max( 0, $attempts - 1 ) ) ) );
}
