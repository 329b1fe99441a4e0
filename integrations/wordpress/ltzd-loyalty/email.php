<?php
/**
 * Confirms members' e-mail addresses: a confirmed address decides what a member may spend at ltzd.
 *
 * An address is confirmed by a link that WordPress or this plugin has mailed to it, opened by the
 * member while logged in. A password that was set through a mailed key confirms nothing: the reader
 * of that mail need not be the member who holds the session or an application password. The user meta
 * below is an HMAC under a secret of this site, over the user's id and the address: a changed address
 * is unconfirmed, however it was changed, and a value that another plugin lets a member write proves
 * nothing.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

/** The field of users/me that ltzd reads. */
const CONFIRMED_FIELD = 'ltzd_email_confirmed';

const CONFIRMED = '_ltzd_confirmed_email'; // User meta: the HMAC of a confirmed address.
const MAILED    = '_ltzd_mailed_link';     // User meta: the newest link, its address and its end.
const MAILINGS  = '_ltzd_mailings';        // User meta: when links were mailed, in Unix seconds.
const SECRET    = 'ltzd_loyalty_secret';
const LINK      = 'ltzd_confirm_email';

const LINK_SECONDS      = 86400;
const MAILING_SECONDS   = 60; // Between two mails to one member's request.
const MAILINGS_PER_DAY  = 5;
const UNCONFIRMED_ERROR = 'ltzd_unconfirmed_email';

add_action( 'rest_api_init', __NAMESPACE__ . '\\register_confirmation' );
add_filter( 'rest_request_after_callbacks', __NAMESPACE__ . '\\tell_refused_change' );
add_filter( 'wp_pre_insert_user_data', __NAMESPACE__ . '\\refuse_change', PHP_INT_MAX, 3 );
add_action( 'woocommerce_save_account_details_errors', __NAMESPACE__ . '\\refuse_form', 10, 2 );
add_action( 'profile_update', __NAMESPACE__ . '\\note_change', 10, 2 );
add_action( 'template_redirect', __NAMESPACE__ . '\\take_link' );

// --- The proof ----------------------------------------------------------------------------------

/** The network's secret: all its sites share it, as they share the users. */
function secret() {
	$kept = get_site_option( SECRET );
	if ( is_string( $kept ) && '' !== $kept ) {
		return $kept;
	}
	add_site_option( SECRET, bin2hex( random_bytes( 32 ) ) );
	return (string) get_site_option( SECRET );
}

function proof( ...$facts ) {
	return hash_hmac( 'sha256', implode( "\n", $facts ), secret() );
}

function is_same( $kept, $proof ) {
	return is_string( $kept ) && hash_equals( $proof, $kept );
}

function is_confirmed( $user ) {
	$proof = proof( 'confirmed', $user->ID, $user->user_email );
	return '' !== $user->user_email && is_same( get_user_meta( $user->ID, CONFIRMED, true ), $proof );
}

function remember_confirmed( $user ) {
	update_user_meta( $user->ID, CONFIRMED, proof( 'confirmed', $user->ID, $user->user_email ) );
}

/** Called when the plugin is deleted. */
function forget_confirmations() {
	foreach ( [ CONFIRMED, MAILED, MAILINGS ] as $key ) {
		delete_metadata( 'user', 0, $key, '', true );
	}
	delete_site_option( SECRET );
}

// --- Over REST ----------------------------------------------------------------------------------

function register_confirmation() {
	register_rest_field(
		'user',
		CONFIRMED_FIELD,
		[
			'get_callback' => __NAMESPACE__ . '\\own_confirmation',
			'schema'       => [
				'description' => __( 'Whether the member has confirmed the e-mail address; null for everybody else.', 'ltzd-loyalty' ),
				'type'        => [ 'boolean', 'null' ],
				'context'     => [ 'edit' ],
				'readonly'    => true,
			],
		]
	);
	register_rest_route(
		LTZD_LOYALTY_NAMESPACE . '/v1',
		'/confirm-email',
		[
			'methods'             => 'POST',
			'callback'            => __NAMESPACE__ . '\\answer_mailing',
			'permission_callback' => '__return_true', // The callback answers as the other routes do.
		]
	);
}

/** Only the current user sees the own value; `$shown` is the user as the request shows it. */
function own_confirmation( $shown ) {
	$user = get_userdata( get_current_user_id() );
	return $user && isset( $shown['id'] ) && (int) $shown['id'] === (int) $user->ID ? is_confirmed( $user ) : null;
}

/** POST {email?}: mails a link to the member's address, or to the new address. */
function answer_mailing( $request ) {
	nocache_headers();
	$user = wp_get_current_user();
	if ( ! $user->ID ) {
		return refusal( 'not_logged_in', __( 'You are not logged in at this site.', 'ltzd-loyalty' ), 401 );
	}
	$given = $request->get_param( 'email' );
	$email = null === $given ? $user->user_email : $given;
	if ( ! is_string( $email ) || strlen( $email ) > 100 || ! is_email( $email ) ) {
		return refusal( 'rest_invalid_param', __( 'email: this is no e-mail address.', 'ltzd-loyalty' ), 400 );
	}
	if ( $email === $user->user_email && is_confirmed( $user ) ) {
		return new \WP_REST_Response( [ 'success' => true, 'confirmed' => true ], 200 );
	}
	return mail_in_turn( $user, $email );
}

/** Handles a member's requests one at a time, so that simultaneous ones are all counted. */
function mail_in_turn( $user, $email ) {
	global $wpdb;
	$lock = "ltzd-mail-$user->ID-" . substr( proof( 'lock' ), 0, 16 );
	if ( '0' === $wpdb->get_var( $wpdb->prepare( 'SELECT GET_LOCK(%s, 5)', $lock ) ) ) {
		return too_many( MAILING_SECONDS );
	}
	try {
		wp_cache_delete( $user->ID, 'user_meta' );
		return mail_unless_too_many( $user, $email );
	} finally {
		$wpdb->query( $wpdb->prepare( 'SELECT RELEASE_LOCK(%s)', $lock ) );
	}
}

function mail_unless_too_many( $user, $email ) {
	$kept = get_user_meta( $user->ID, MAILINGS, true );
	$now  = time();
	$sent = [];
	foreach ( is_array( $kept ) ? $kept : [] as $at ) {
		if ( $at > $now - DAY_IN_SECONDS ) {
			$sent[] = (int) $at;
		}
	}
	$wait = [] === $sent ? 0 : max( $sent ) + MAILING_SECONDS - $now;
	if ( count( $sent ) >= MAILINGS_PER_DAY ) {
		$wait = max( $wait, min( $sent ) + DAY_IN_SECONDS - $now );
	}
	if ( $wait > 0 ) {
		return too_many( $wait );
	}
	update_user_meta( $user->ID, MAILINGS, array_merge( $sent, [ $now ] ) );
	return mail_link( $user, $email )
		? new \WP_REST_Response( [ 'success' => true, 'confirmed' => false ], 200 )
		: refusal( 'mail_failed', __( 'The mail could not be sent. Please tell the site\'s administrator.', 'ltzd-loyalty' ), 500 );
}

function too_many( $seconds ) {
	$message  = __( 'A link was mailed not long ago. Please look for it before you ask for another.', 'ltzd-loyalty' );
	$body     = [ 'code' => 'rest_too_many_requests', 'message' => $message, 'data' => [ 'status' => 429 ] ];
	$response = new \WP_REST_Response( $body, 429 );
	$response->header( 'Retry-After', (string) $seconds );
	return $response;
}

// --- The link -----------------------------------------------------------------------------------

function mail_link( $user, $email ) {
	$token = bin2hex( random_bytes( 32 ) );
	$ends  = time() + LINK_SECONDS;
	$proof = proof( 'link', $user->ID, $email, $ends, $token );
	update_user_meta( $user->ID, MAILED, [ 'proof' => $proof, 'email' => wp_slash( $email ), 'ends' => $ends ] );
	$site = wp_specialchars_decode( get_option( 'blogname' ), ENT_QUOTES );
	/* translators: %s: the site's name */
	$subject = sprintf( __( '[%s] Confirm your e-mail address', 'ltzd-loyalty' ), $site );
	/* translators: 1: a user name, 2: the site's name, 3: a link */
	$text = __( "%1\$s at %2\$s has asked to confirm this e-mail address. If that is you, log in there and open this link within a day:\n\n%3\$s\n\nIf it is not you, do not open it: it would give that member a say over the rewards of this address.", 'ltzd-loyalty' );
	return wp_mail( $email, $subject, sprintf( $text, $user->user_login, $site, address_of_link( $token ) ) );
}

function address_of_link( $token ) {
	return add_query_arg( LINK, $token, home_url( '/' ) );
}

/** Answers the mailed link. */
function take_link() {
	if ( ! isset( $_GET[ LINK ] ) ) {
		return;
	}
	nocache_headers();
	header( 'Referrer-Policy: no-referrer' );
	$token = is_string( $_GET[ LINK ] ) && preg_match( '/\A[0-9a-f]{64}\z/', $_GET[ LINK ] ) ? $_GET[ LINK ] : '';
	if ( ! is_user_logged_in() ) {
		wp_safe_redirect( wp_login_url( address_of_link( $token ) ) );
		exit;
	}
	$done = confirm_by_link( wp_get_current_user(), $token );
	wp_die(
		esc_html( is_wp_error( $done ) ? $done->get_error_message() : __( 'Your e-mail address is confirmed.', 'ltzd-loyalty' ) ),
		esc_html__( 'Your e-mail address', 'ltzd-loyalty' ),
		[
			'response'  => is_wp_error( $done ) ? 400 : 200,
			'link_url'  => esc_url( home_url( '/' ) ),
			'link_text' => esc_html__( 'Back to the site', 'ltzd-loyalty' ),
		]
	);
}

/** Returns true or a WP_Error. A link works once, until its end, for the member who requested it. */
function confirm_by_link( $user, $token ) {
	$kept = get_user_meta( $user->ID, MAILED, true );
	if ( ! is_array( $kept ) || ! isset( $kept['proof'], $kept['email'], $kept['ends'] ) || $kept['ends'] < time()
		|| ! is_same( $kept['proof'], proof( 'link', $user->ID, $kept['email'], $kept['ends'], $token ) ) ) {
		return refusal( 'bad_link', __( 'This link was used before, has ended, or is another member\'s. Please ask for a new one.', 'ltzd-loyalty' ), 400 );
	}
	if ( ! delete_user_meta( $user->ID, MAILED ) ) {
		return refusal( 'bad_link', __( 'This link was used before.', 'ltzd-loyalty' ), 400 );
	}
	if ( $user->user_email === $kept['email'] ) {
		remember_confirmed( $user );
		return true;
	}
	confirmed_now( $kept['email'] );
	$done = wp_update_user( [ 'ID' => $user->ID, 'user_email' => wp_slash( $kept['email'] ) ] );
	confirmed_now( '' );
	return is_wp_error( $done ) ? $done : true;
}

/** Returns the address that this request's link has confirmed; sets it if an argument is given. */
function confirmed_now( $set = null ) {
	static $email = '';
	if ( null !== $set ) {
		$email = $set;
	}
	return $email;
}

// --- Changes of address -------------------------------------------------------------------------

/**
 * Drops the change if a user changes the own address without a confirmation. Every route ends in
 * wp_insert_user, which does nothing without data.
 */
function refuse_change( $data, $is_update, $user_id ) {
	$is_refused = $is_update && is_array( $data ) && isset( $data['user_email'] ) && is_refused( (int) $user_id, $data['user_email'] );
	if ( $is_refused ) {
		has_refused( true );
	}
	return $is_refused ? [] : $data;
}

/** Makes the REST API answer a refused change with the error. */
function tell_refused_change( $response ) {
	$is_refused = has_refused();
	has_refused( false );
	return $is_refused ? refusal( UNCONFIRMED_ERROR, refused_change(), 403 ) : $response;
}

/** Shows the error in WooCommerce's account form, which would show none. */
function refuse_form( $errors, $user ) {
	if ( isset( $user->ID, $user->user_email ) && is_refused( (int) $user->ID, $user->user_email ) ) {
		$errors->add( UNCONFIRMED_ERROR, esc_html( refused_change() ) );
	}
}

function refused_change() {
	return __( 'An e-mail address is changed by a link that is mailed to it. Ask for that link on the loyalty page, under “Your e-mail address”, or on your profile page.', 'ltzd-loyalty' );
}

function has_refused( $set = null ) {
	static $has = false;
	if ( null !== $set ) {
		$has = $set;
	}
	return $has;
}

/** Whether the current user would set the own address to one that is not confirmed. */
function is_refused( $user_id, $email ) {
	if ( 0 === $user_id || get_current_user_id() !== $user_id || current_user_can( 'edit_users' ) ) {
		return false;
	}
	$user = get_userdata( $user_id );
	return $user && $user->user_email !== $email && ! is_change_confirmed( $user_id, $email );
}

/** Confirmed by this plugin's link, by WordPress's own (profile.php?newuseremail=…) or by another plugin. */
function is_change_confirmed( $user_id, $email ) {
	if ( get_current_user_id() !== $user_id ) {
		return false;
	}
	return confirmed_now() === $email
		|| is_confirmed_by_core( $user_id, $email )
		|| true === apply_filters( 'ltzd_loyalty_is_email_confirmed', false, $user_id, $email );
}

function is_confirmed_by_core( $user_id, $email ) {
	$kept = get_user_meta( $user_id, '_new_email', true );
	return isset( $_GET['newuseremail'] ) && is_string( $_GET['newuseremail'] )
		&& is_array( $kept ) && isset( $kept['hash'], $kept['newemail'] ) && '' !== $kept['hash']
		&& $kept['newemail'] === $email && is_same( $kept['hash'], $_GET['newuseremail'] );
}

/** Runs after each change of a user: a new address is unconfirmed, unless a mailed link has set it. */
function note_change( $user_id, $old ) {
	$user = get_userdata( $user_id );
	if ( ! $user || $user->user_email === $old->user_email ) {
		return;
	}
	delete_user_meta( $user_id, MAILED );
	if ( is_change_confirmed( (int) $user_id, $user->user_email ) ) {
		remember_confirmed( $user );
	} else {
		delete_user_meta( $user_id, CONFIRMED );
	}
}
