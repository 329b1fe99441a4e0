<?php
/**
 * Customer events of the shop, each switched on by the event type that the brand rewards.
 *
 * A completed order of WooCommerce, a registration, an approved review of a product, and a
 * newsletter's new reader become events of queue.php. Another plugin reports a reader by
 * `do_action( 'ltzd_loyalty_newsletter_signup', $email )`.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const EVENTS_OPTION  = 'ltzd_loyalty_events';
const KINDS          = [ 'purchase', 'registration', 'review', 'newsletter' ];
const RESEND_ACTION  = 'ltzd_loyalty_resend';
const NOTE_CANCELLED = 'the order was cancelled';

require_once __DIR__ . '/decision.php';
require_once __DIR__ . '/sending.php';
require_once __DIR__ . '/queue.php';
require_once __DIR__ . '/settings.php';
require_once __DIR__ . '/tracker.php';

add_action( 'init', __NAMESPACE__ . '\\keep_schedule' );
add_action( 'woocommerce_order_status_completed', __NAMESPACE__ . '\\on_order' );
add_action( 'woocommerce_order_status_cancelled', __NAMESPACE__ . '\\on_cancellation' );
add_action( 'woocommerce_order_status_failed', __NAMESPACE__ . '\\on_cancellation' );
add_action( 'woocommerce_order_refunded', __NAMESPACE__ . '\\on_refund' );
add_filter( 'woocommerce_order_actions', __NAMESPACE__ . '\\offer_resending', 10, 2 );
add_action( 'woocommerce_order_action_' . RESEND_ACTION, __NAMESPACE__ . '\\resend' );
add_action( 'user_register', __NAMESPACE__ . '\\on_registration' );
add_action( 'comment_post', __NAMESPACE__ . '\\on_comment' );
add_action( 'wp_set_comment_status', __NAMESPACE__ . '\\on_comment' );
add_action( 'ltzd_loyalty_newsletter_signup', __NAMESPACE__ . '\\on_newsletter' );
add_action( 'mc4wp_form_subscribed', __NAMESPACE__ . '\\on_mailchimp_form', 10, 2 );
add_action( 'newsletter_user_confirmed', __NAMESPACE__ . '\\on_newsletter_reader' );
register_deactivation_hook( dirname( __DIR__ ) . '/ltzd-loyalty.php', __NAMESPACE__ . '\\end_schedule' );

/** @return array{purchase: string, registration: string, review: string, newsletter: string, rate: string, key: string, tracker: string} */
function event_settings() {
	$kept = get_option( EVENTS_OPTION, [] );
	return array_merge( array_fill_keys( [ 'purchase', 'registration', 'review', 'newsletter', 'rate', 'key', 'tracker' ], '' ), is_array( $kept ) ? $kept : [] );
}

function keep_schedule() {
	if ( '' !== implode( '', array_intersect_key( event_settings(), array_flip( KINDS ) ) ) ) {
		plan_sweeps();
	}
}

// --- Orders -------------------------------------------------------------------------------------

function on_order( $order_id ) {
	$order = '' === event_settings()['purchase'] ? null : order_of( $order_id );
	if ( null === $order ) {
		return;
	}
	$amount = dollars_of( $order );
	if ( null === $amount ) {
		/* translators: %s: a currency, such as EUR */
		$order->add_order_note( sprintf( __( 'Loyalty: nothing was sent, because the settings do not say how many US dollars one %s is worth.', 'ltzd-loyalty' ), $order->get_currency() ) );
	} elseif ( (float) $amount > 0 ) {
		$is_new = queue_event( 'purchase', (string) $order->get_id(), email_of( $order ), [ 'amount' => $amount, 'order' => (string) $order->get_id() ] );
		$row    = $is_new ? null : event_row( 'purchase', (string) $order->get_id() );
		if ( null !== $row && is_cancelled( $row, $order ) ) {
			send_again( $row, $order, $amount );
		}
	}
}

/** Whether the order's event was not sent because the order was cancelled; false for an erased person. */
function is_cancelled( $row, $order ) {
	return REFUSED === $row['state'] && NOTE_CANCELLED === $row['note'] && email_key( email_of( $order ) ) === $row['email_key'];
}

/** An order that is cancelled, or whose payment fails, before its event is sent earns nothing until it is completed again. */
function on_cancellation( $order_id ) {
	$row = event_row( 'purchase', (string) $order_id );
	if ( null === $row || WAITING !== $row['state'] || null !== $row['unclear_since'] ) {
		return;
	}
	$changes = settled( REFUSED, time(), [ 'note' => NOTE_CANCELLED ] );
	if ( change_row( $row['id'], WAITING, $changes ) ) {
		note_outcome( $changes + $row );
	}
}

/** An amount that is refunded before its event was sent is taken off; later the reward stays. */
function on_refund( $order_id ) {
	$row   = event_row( 'purchase', (string) $order_id );
	$order = null === $row ? null : order_of( $order_id );
	if ( null === $order ) {
		return;
	}
	$amount = dollars_of( $order );
	if ( WAITING === $row['state'] && null === $row['unclear_since'] && null !== $amount ) {
		$metadata = (string) wp_json_encode( [ 'amount' => $amount, 'order' => (string) $order_id ] );
		$changes  = (float) $amount > 0 ? [ 'metadata' => $metadata ] : [ 'state' => CANCELLED, 'email' => null, 'note' => 'refunded' ];
		if ( change_row( $row['id'], WAITING, $changes ) ) {
			$order->add_order_note( __( 'Loyalty: the refund is taken off the reward, which was not sent yet.', 'ltzd-loyalty' ) );
			return;
		}
	}
	if ( in_array( $row['state'], [ WAITING, SENDING, SENT, UNCLEAR ], true ) ) {
		$order->add_order_note( __( 'Loyalty: this order has been rewarded already. The refund takes no points back.', 'ltzd-loyalty' ) );
	}
}

function order_of( $order_id ) {
	$order = function_exists( 'wc_get_order' ) ? wc_get_order( $order_id ) : null;
	return is_object( $order ) ? $order : null;
}

/** The address of the customer's account, to which the member's wallet belongs; a guest's own one. */
function email_of( $order ) {
	$user = $order->get_customer_id() ? get_userdata( $order->get_customer_id() ) : false;
	return $user ? $user->user_email : (string) $order->get_billing_email();
}

/** What was paid and not refunded, in US dollars as decimal text; null without an exchange rate. */
function dollars_of( $order ) {
	$rate = 'USD' === $order->get_currency() ? '1' : event_settings()['rate'];
	$paid = (float) $order->get_total() - (float) $order->get_total_refunded();
	return '' === $rate ? null : number_format( floor( max( 0, $paid ) * (float) $rate * 100 + 1e-6 ) / 100, 2, '.', '' );
}

/** Tells an order's owner of its outcome; other kinds have no place for a note. */
function note_outcome( $row ) {
	$order = 'purchase' === $row['kind'] && WAITING !== $row['state'] ? order_of( $row['subject'] ) : null;
	if ( null === $order ) {
		return;
	}
	switch ( $row['state'] ) {
		case SENT:
			/* translators: 1: a number of points, 2: an event's id */
			$text = sprintf( __( 'Loyalty: rewarded with %1$s LTZ (event %2$s).', 'ltzd-loyalty' ), null === $row['reward'] ? '?' : $row['reward'], null === $row['event_id'] ? '?' : $row['event_id'] );
			break;
		case REFUSED:
			/* translators: %s: ltzd's reason, in English */
			$text = sprintf( __( 'Loyalty: not rewarded: %s', 'ltzd-loyalty' ), $row['note'] );
			break;
		default:
			$text = __( 'Loyalty: it is not known whether this order was rewarded, so it is not sent again by itself. Ask the operator of ltzd, and choose “Send the loyalty event again” only if it was not.', 'ltzd-loyalty' );
	}
	$order->add_order_note( $text );
}

function offer_resending( $actions, $order = null ) {
	$row = is_object( $order ) ? event_row( 'purchase', (string) $order->get_id() ) : null;
	if ( null !== $row && in_array( $row['state'], [ REFUSED, UNCLEAR ], true ) ) {
		$actions[ RESEND_ACTION ] = __( 'Send the loyalty event again', 'ltzd-loyalty' );
	}
	return $actions;
}

/** The owner has found out that the order was not rewarded. WooCommerce has checked the capability. */
function resend( $order ) {
	$row    = event_row( 'purchase', (string) $order->get_id() );
	$amount = dollars_of( $order );
	if ( null === $row || null === $amount || (float) $amount <= 0 || ! current_user_can( 'edit_shop_orders' ) ) {
		return;
	}
	send_again( $row, $order, $amount );
}

/** Sends a settled event as a new one. */
function send_again( $row, $order, $amount ) {
	$changes = [
		'state'         => WAITING,
		'email'         => email_of( $order ),
		'metadata'      => (string) wp_json_encode( [ 'amount' => $amount, 'order' => (string) $order->get_id() ] ),
		'nonce'         => bin2hex( random_bytes( 16 ) ),
		'attempts'      => 0,
		'due_at'        => time(),
		'created_at'    => time(),
		'unclear_since' => null,
	];
	if ( change_row( $row['id'], REFUSED, $changes ) || change_row( $row['id'], UNCLEAR, $changes ) ) {
		schedule_sending( time() );
	}
}

// --- People -------------------------------------------------------------------------------------

/** A user whom another one creates has not registered. */
function on_registration( $user_id ) {
	$user = get_userdata( $user_id );
	if ( $user && in_array( get_current_user_id(), [ 0, (int) $user_id ], true ) ) {
		queue_event( 'registration', (string) $user_id, $user->user_email, [] );
	}
}

/** A review of a product, once it is approved. A reply to a review, as by the shop itself, is none. */
function on_comment( $comment_id ) {
	$comment = get_comment( $comment_id );
	if ( ! $comment || '1' !== (string) $comment->comment_approved || 0 !== (int) $comment->comment_parent || 'product' !== get_post_type( (int) $comment->comment_post_ID ) ) {
		return;
	}
	$user  = $comment->user_id ? get_userdata( (int) $comment->user_id ) : false;
	$email = $user ? $user->user_email : $comment->comment_author_email;
	queue_event( 'review', (string) $comment_id, $email, [ 'product' => (string) $comment->comment_post_ID ] );
}

function on_newsletter( $email ) {
	if ( is_string( $email ) ) {
		queue_event( 'newsletter', email_key( $email ), $email, [] );
	}
}

/** MC4WP: Mailchimp for WordPress. */
function on_mailchimp_form( $form, $email = '' ) {
	on_newsletter( $email );
}

/** The plugin Newsletter, once the address is confirmed. */
function on_newsletter_reader( $reader ) {
	on_newsletter( isset( $reader->email ) ? $reader->email : '' );
}
