<?php
/**
 * The queue of events: a table whose unique key is the event's subject, such as an order.
 *
 * One hook sends whatever is due, run by Action Scheduler where a plugin brings it (WooCommerce does)
 * and by WP-Cron elsewhere; an hourly run finds what a killed process has left. A row is claimed by an
 * update that names its state, so two runs never send one row.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const SEND_HOOK     = 'ltzd_loyalty_send';
const SWEEP_HOOK    = 'ltzd_loyalty_sweep';
const ACTION_GROUP  = 'ltzd-loyalty';
const TABLE_OPTION  = 'ltzd_loyalty_table';
const TABLE_VERSION = '1';

const ROWS_IN_A_RUN      = 20;
const ATTEMPTS_IN_A_RUN  = 3;
const SECONDS_OF_A_CLAIM = 300;
const SECONDS_UNHEALTHY  = 300;

add_action( SEND_HOOK, __NAMESPACE__ . '\\send_due' );
add_action( SWEEP_HOOK, __NAMESPACE__ . '\\send_due' );

function events_table() {
	global $wpdb;
	return $wpdb->prefix . 'ltzd_events';
}

/** Creates the table unless this version has. */
function ensure_table() {
	global $wpdb;
	if ( TABLE_VERSION === get_option( TABLE_OPTION ) ) {
		return;
	}
	$table   = events_table();
	$collate = $wpdb->get_charset_collate();
	$wpdb->query(
		"CREATE TABLE IF NOT EXISTS $table (
			id bigint unsigned NOT NULL AUTO_INCREMENT,
			kind varchar(20) NOT NULL,
			subject varchar(64) NOT NULL,
			event_type varchar(50) NOT NULL,
			email varchar(254) NULL,
			email_key char(64) NOT NULL,
			metadata text NOT NULL,
			nonce char(32) NOT NULL,
			state varchar(10) NOT NULL,
			attempts int NOT NULL DEFAULT 0,
			due_at bigint NOT NULL,
			started_at bigint NULL,
			unclear_since bigint NULL,
			created_at bigint NOT NULL,
			event_id varchar(36) NULL,
			reward int NULL,
			note varchar(255) NOT NULL DEFAULT '',
			PRIMARY KEY (id),
			UNIQUE KEY subject (kind, subject),
			KEY due (state, due_at),
			KEY email_key (email_key),
			KEY event_id (event_id)
		) $collate"
	);
	update_option( TABLE_OPTION, TABLE_VERSION, false );
}

/** An address as a key: rows that hold no address any more are found by it. */
function email_key( $email ) {
	return proof( 'event', strtolower( $email ) );
}

/** Queues an event once for its subject, for ever. Returns whether it is new. */
function queue_event( $kind, $subject, $email, $metadata ) {
	global $wpdb;
	$type = event_settings()[ $kind ];
	if ( '' === $type || ! is_string( $email ) || strlen( $email ) > 254 || ! is_email( $email ) ) {
		return false;
	}
	ensure_table();
	$table = events_table();
	$now   = time();
	$rows  = $wpdb->query(
		$wpdb->prepare(
			"INSERT IGNORE INTO $table (kind, subject, event_type, email, email_key, metadata, nonce, state, due_at, created_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %d, %d)",
			$kind,
			$subject,
			$type,
			$email,
			email_key( $email ),
			(string) wp_json_encode( (object) $metadata ),
			bin2hex( random_bytes( 16 ) ),
			WAITING,
			$now,
			$now
		)
	);
	schedule_sending( $now );
	return 1 === $rows;
}

function event_row( $kind, $subject ) {
	global $wpdb;
	ensure_table();
	$table = events_table();
	return row_of( $wpdb->get_row( $wpdb->prepare( "SELECT * FROM $table WHERE kind = %s AND subject = %s", $kind, $subject ), ARRAY_A ) );
}

function row_of( $columns ) {
	if ( null === $columns ) {
		return null;
	}
	foreach ( [ 'id', 'attempts', 'due_at', 'started_at', 'unclear_since', 'created_at', 'reward' ] as $name ) {
		$columns[ $name ] = null === $columns[ $name ] ? null : (int) $columns[ $name ];
	}
	return $columns;
}

/** Changes a row if it is in the state. Returns whether it was. */
function change_row( $id, $state, $changes ) {
	global $wpdb;
	if ( isset( $changes['note'] ) ) {
		$changes['note'] = mb_substr( $changes['note'], 0, 255 );
	}
	return 1 === $wpdb->update( events_table(), $changes, [ 'id' => $id, 'state' => $state ] );
}

// --- A run --------------------------------------------------------------------------------------

function send_due() {
	if ( '' === settings()['url'] || '' === settings()['brand'] ) {
		return;
	}
	ensure_table();
	settle_abandoned( time() );
	$ids = due_ids( time() );
	if ( [] !== $ids && ! is_ltzd_healthy() ) {
		schedule_sending( time() + SECONDS_UNHEALTHY );
		return;
	}
	foreach ( $ids as $id ) {
		for ( $attempt = 0; $attempt < ATTEMPTS_IN_A_RUN && send_row( $id ); $attempt++ ) {
			sleep( 1 );
		}
	}
	schedule_next();
}

function due_ids( $now ) {
	global $wpdb;
	$table = events_table();
	return array_map( 'intval', $wpdb->get_col( $wpdb->prepare( "SELECT id FROM $table WHERE state = %s AND due_at <= %d ORDER BY due_at LIMIT %d", WAITING, $now, ROWS_IN_A_RUN ) ) );
}

/** Sends a row that this run has claimed. Returns whether the row is to be sent again at once. */
function send_row( $id ) {
	global $wpdb;
	$table = events_table();
	$now   = time();
	$ours  = $wpdb->query( $wpdb->prepare( "UPDATE $table SET state = %s, attempts = attempts + 1, started_at = %d, due_at = %d WHERE id = %d AND state = %s AND due_at <= %d", SENDING, $now, $now + SECONDS_OF_A_CLAIM, $id, WAITING, $now + 1 ) );
	if ( 1 !== $ours ) {
		return false;
	}
	$row     = row_of( $wpdb->get_row( $wpdb->prepare( "SELECT * FROM $table WHERE id = %d", $id ), ARRAY_A ) );
	$answer  = send_event( $row, $now );
	$event   = isset( $answer['body']['details']['existingEventId'] ) ? $answer['body']['details']['existingEventId'] : '';
	$answer += [ 'is_others' => is_event_of_another( $id, $event ) ];
	$changes = decide( $row, $answer, time() );
	if ( change_row( $id, SENDING, $changes ) ) {
		note_outcome( $changes + $row );
	}
	return WAITING === $changes['state'] && $changes['due_at'] <= time() + 1;
}

function is_event_of_another( $id, $event_id ) {
	global $wpdb;
	$table = events_table();
	return is_string( $event_id ) && '' !== $event_id && null !== $wpdb->get_var( $wpdb->prepare( "SELECT id FROM $table WHERE event_id = %s AND id <> %d", $event_id, $id ) );
}

/** Rows of a process that was killed while it sent them: whether ltzd recorded them is unknown. */
function settle_abandoned( $now ) {
	global $wpdb;
	$table = events_table();
	foreach ( $wpdb->get_results( $wpdb->prepare( "SELECT * FROM $table WHERE state = %s AND due_at <= %d", SENDING, $now ), ARRAY_A ) as $columns ) {
		$row     = row_of( $columns );
		$changes = abandoned( $row, $now );
		if ( change_row( $row['id'], SENDING, $changes ) ) {
			note_outcome( $changes + $row );
		}
	}
}

// --- The schedule -------------------------------------------------------------------------------

function schedule_next() {
	global $wpdb;
	$table = events_table();
	$next  = $wpdb->get_var( $wpdb->prepare( "SELECT min(due_at) FROM $table WHERE state IN (%s, %s)", WAITING, SENDING ) );
	if ( null !== $next ) {
		schedule_sending( max( time() + 1, (int) $next ) );
	}
}

/** Plans a run, unless an earlier one is planned. */
function schedule_sending( $at ) {
	if ( function_exists( 'as_schedule_single_action' ) ) {
		$next = as_next_scheduled_action( SEND_HOOK, [], ACTION_GROUP );
		if ( is_int( $next ) && $next <= $at ) {
			return;
		}
		as_unschedule_all_actions( SEND_HOOK, [], ACTION_GROUP );
		as_schedule_single_action( $at, SEND_HOOK, [], ACTION_GROUP );
		return;
	}
	$next = wp_next_scheduled( SEND_HOOK );
	if ( false === $next || $next > $at ) {
		wp_clear_scheduled_hook( SEND_HOOK );
		wp_schedule_single_event( $at, SEND_HOOK );
	}
}

function plan_sweeps() {
	if ( ! wp_next_scheduled( SWEEP_HOOK ) ) {
		wp_schedule_event( time() + 600, 'hourly', SWEEP_HOOK );
	}
}

function end_schedule() {
	wp_clear_scheduled_hook( SEND_HOOK );
	wp_clear_scheduled_hook( SWEEP_HOOK );
	if ( function_exists( 'as_unschedule_all_actions' ) ) {
		as_unschedule_all_actions( SEND_HOOK, [], ACTION_GROUP );
	}
}

/** Called when the plugin is deleted. */
function forget_events() {
	global $wpdb;
	end_schedule();
	$wpdb->query( 'DROP TABLE IF EXISTS ' . events_table() );
	delete_option( TABLE_OPTION );
	delete_option( EVENTS_OPTION );
}
