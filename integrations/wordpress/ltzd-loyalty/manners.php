<?php
/**
 * What a plugin owes its site: answers to members are stored by no cache, a person's data is exported
 * and erased with WordPress's own tools, and the list of plugins leads to the settings.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const NO_STORE  = 'no-store, no-cache, must-revalidate, max-age=0, private';
const EXPORTER  = 'ltzd-loyalty';
const OWN_PAGES = '/\[ltzd_(?:loyalty|streak|points|perks)\b|<!-- wp:ltzd-loyalty\/(?:streak|points|perks)\b/';

add_filter( 'rest_pre_dispatch', __NAMESPACE__ . '\\store_no_answer', 10, 3 );
add_filter( 'rest_post_dispatch', __NAMESPACE__ . '\\mark_answer', 10, 3 );
add_action( 'template_redirect', __NAMESPACE__ . '\\store_no_page' );
add_filter( 'plugin_action_links_' . plugin_basename( __DIR__ . '/ltzd-loyalty.php' ), __NAMESPACE__ . '\\add_settings_link' );
add_filter( 'wp_privacy_personal_data_exporters', __NAMESPACE__ . '\\add_exporter' );
add_filter( 'wp_privacy_personal_data_erasers', __NAMESPACE__ . '\\add_eraser' );
add_action( 'admin_init', __NAMESPACE__ . '\\suggest_privacy_policy' );
add_action( 'deleted_user', __NAMESPACE__ . '\\forget_user', 10, 3 );

// --- Caches -------------------------------------------------------------------------------------

/** Whether the answer tells what belongs to one member: this plugin's routes, and users/me. */
function is_personal( $route ) {
	$public = array_map(
		static function ( $name ) {
			return '/' . LTZD_LOYALTY_NAMESPACE . "/v1/$name";
		},
		FOR_EVERYBODY
	);
	return '/wp/v2/users/me' === $route || is_own_route( $route ) && ! in_array( $route, $public, true );
}

/** WordPress says no-cache for whoever is logged in, and before 6.3 says it after all other headers. */
function store_no_answer( $result, $server, $request ) {
	if ( is_personal( $request->get_route() ) ) {
		add_filter( 'nocache_headers', __NAMESPACE__ . '\\no_store' );
	}
	return $result;
}

function no_store( $headers ) {
	return [ 'Cache-Control' => NO_STORE ] + (array) $headers;
}

function mark_answer( $response, $server, $request ) {
	if ( is_personal( $request->get_route() ) ) {
		$response->header( 'Cache-Control', NO_STORE );
	}
	return $response;
}

/** A member's page holds the nonce and the address. */
function store_no_page() {
	$post = is_user_logged_in() && is_singular() ? get_post() : null;
	if ( $post && preg_match( OWN_PAGES, $post->post_content ) ) {
		header( 'Cache-Control: ' . NO_STORE );
	}
}

// --- The list of plugins ------------------------------------------------------------------------

function add_settings_link( $links ) {
	if ( current_user_can( CAPABILITY ) ) {
		$link = sprintf( '<a href="%s">%s</a>', esc_url( admin_url( 'options-general.php?page=' . PAGE ) ), esc_html__( 'Settings', 'ltzd-loyalty' ) );
		array_unshift( $links, $link );
	}
	return $links;
}

// --- A person's data ----------------------------------------------------------------------------

function add_exporter( $exporters ) {
	$exporters[ EXPORTER ] = [
		'exporter_friendly_name' => __( 'Loyalty', 'ltzd-loyalty' ),
		'callback'               => __NAMESPACE__ . '\\export_person',
	];
	return $exporters;
}

function add_eraser( $erasers ) {
	$erasers[ EXPORTER ] = [
		'eraser_friendly_name' => __( 'Loyalty', 'ltzd-loyalty' ),
		'callback'             => __NAMESPACE__ . '\\erase_person',
	];
	return $erasers;
}

function export_person( $email, $page = 1 ) {
	$data = [];
	$user = get_user_by( 'email', $email );
	if ( $user ) {
		$data[] = exported(
			"member-$user->ID",
			[
				__( 'E-mail address confirmed', 'ltzd-loyalty' ) => is_confirmed( $user ) ? __( 'yes', 'ltzd-loyalty' ) : __( 'no', 'ltzd-loyalty' ),
				__( 'Confirmations mailed', 'ltzd-loyalty' )     => implode( ', ', array_map( __NAMESPACE__ . '\\day_of', array_filter( (array) get_user_meta( $user->ID, MAILINGS, true ) ) ) ),
			]
		);
	}
	foreach ( rows_of_person( $email ) as $row ) {
		$data[] = exported(
			"event-$row[id]",
			[
				__( 'Event', 'ltzd-loyalty' )     => $row['event_type'],
				__( 'Time', 'ltzd-loyalty' )      => day_of( $row['created_at'] ),
				__( 'State', 'ltzd-loyalty' )     => $row['state'],
				__( 'Details', 'ltzd-loyalty' )   => $row['metadata'],
				__( 'Id at ltzd', 'ltzd-loyalty' ) => (string) $row['event_id'],
			]
		);
	}
	return [ 'data' => $data, 'done' => true ];
}

function exported( $id, $values ) {
	$data = [];
	foreach ( array_filter( $values, 'strlen' ) as $name => $value ) {
		$data[] = compact( 'name', 'value' );
	}
	return [ 'group_id' => EXPORTER, 'group_label' => __( 'Loyalty', 'ltzd-loyalty' ), 'item_id' => $id, 'data' => $data ];
}

function day_of( $seconds ) {
	return gmdate( 'Y-m-d H:i:s', (int) $seconds ) . ' UTC';
}

function rows_of_person( $email ) {
	global $wpdb;
	ensure_table();
	$table = events_table();
	return $wpdb->get_results( $wpdb->prepare( "SELECT * FROM $table WHERE email_key = %s ORDER BY id", email_key( $email ) ), ARRAY_A );
}

/** Erases whatever names the person. An event's row stays without it, so that an order is not rewarded twice. */
function erase_person( $email, $page = 1 ) {
	$rows   = forget_events_of( $email );
	$user   = get_user_by( 'email', $email );
	$erased = $rows;
	foreach ( $user ? [ CONFIRMED, MAILED, MAILINGS ] : [] as $key ) {
		$erased += delete_user_meta( $user->ID, $key ) ? 1 : 0;
	}
	return [
		'items_removed'  => $erased > 0,
		'items_retained' => $rows > 0,
		'messages'       => $rows > 0 ? [ __( 'Loyalty: ltzd keeps rewards of this address. Its operator erases the address there.', 'ltzd-loyalty' ) ] : [],
		'done'           => true,
	];
}

/** Returns how many rows named the person. Events that were not sent yet are cancelled. */
function forget_events_of( $email ) {
	global $wpdb;
	ensure_table();
	$table = events_table();
	$key   = email_key( $email );
	$wpdb->query( $wpdb->prepare( "UPDATE $table SET state = %s WHERE email_key = %s AND state = %s", CANCELLED, $key, WAITING ) );
	return (int) $wpdb->query( $wpdb->prepare( "UPDATE $table SET email = NULL, email_key = '', metadata = '{}' WHERE email_key = %s", $key ) );
}

/** WordPress has deleted the user with the user's meta. */
function forget_user( $user_id, $reassign = null, $user = null ) {
	if ( is_object( $user ) && '' !== $user->user_email ) {
		forget_events_of( $user->user_email );
	}
}

function suggest_privacy_policy() {
	if ( function_exists( 'wp_add_privacy_policy_content' ) ) {
		wp_add_privacy_policy_content( __( 'Loyalty', 'ltzd-loyalty' ), '<p>' . esc_html__( 'For the loyalty programme we pass your e-mail address to ltzd, which keeps a wallet for it, together with your check-ins, what you redeem, and the events for which you earn points: orders with their amounts, your registration, reviews and newsletter. Rewards are entries of a blockchain without your name or address, and cannot be deleted there.', 'ltzd-loyalty' ) . '</p>' );
	}
}
