<?php
/** The settings of the events, on the plugin's settings page. */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const LONGEST_KEY = 200;
const REMOVE_KEY  = '-';

add_action( 'admin_init', __NAMESPACE__ . '\\register_event_settings' );

/** Each field's label, help text and placeholder. */
function event_fields() {
	$type = __( 'The event type that the brand file rewards. Empty: not sent.', 'ltzd-loyalty' );
	return [
		'purchase'     => [ __( 'Completed order', 'ltzd-loyalty' ), $type, 'purchase' ],
		'registration' => [ __( 'Registration', 'ltzd-loyalty' ), $type, 'account_creation' ],
		'review'       => [ __( 'Approved review of a product', 'ltzd-loyalty' ), $type, 'review_submission' ],
		'newsletter'   => [ __( 'Newsletter', 'ltzd-loyalty' ), $type, 'newsletter_signup' ],
		'rate'         => [ __( 'US dollars for one unit of the shop’s currency', 'ltzd-loyalty' ), __( 'Needed unless the shop sells in US dollars.', 'ltzd-loyalty' ), '1.08' ],
		'key'          => [ __( 'Security key of the brand', 'ltzd-loyalty' ), __( 'Signs the events. It is not shown again; empty keeps it, and a hyphen removes it. wp-config.php may define LTZD_LOYALTY_SECURITY_KEY instead.', 'ltzd-loyalty' ), 'ltzsk_…' ],
		'tracker'      => [ __( 'Tracker on every page', 'ltzd-loyalty' ), __( 'yes: ltzd’s script sends the events that the brand’s patterns and selectors detect, with a member’s address. Empty: no script.', 'ltzd-loyalty' ), 'yes' ],
	];
}

function register_event_settings() {
	register_setting( OPTION, EVENTS_OPTION, [ 'type' => 'object', 'default' => [], 'sanitize_callback' => __NAMESPACE__ . '\\checked_events' ] );
	add_settings_section( 'events', __( 'Events', 'ltzd-loyalty' ), '__return_null', PAGE );
	foreach ( event_fields() as $name => list( $label ) ) {
		add_settings_field( EVENTS_OPTION . "_$name", $label, __NAMESPACE__ . '\\show_event_field', PAGE, 'events', [ 'name' => $name, 'label_for' => EVENTS_OPTION . "_$name" ] );
	}
}

function show_event_field( $arguments ) {
	$name                     = $arguments['name'];
	list( , $help, $example ) = event_fields()[ $name ];
	$is_secret                = 'key' === $name;
	printf(
		'<input class="regular-text code" type="%6$s" autocomplete="off" id="%1$s" name="%2$s" value="%3$s" placeholder="%4$s" aria-describedby="%1$s-help"><p class="description" id="%1$s-help">%5$s</p>',
		esc_attr( $arguments['label_for'] ),
		esc_attr( EVENTS_OPTION . "[$name]" ),
		esc_attr( $is_secret ? '' : event_settings()[ $name ] ),
		esc_attr( $is_secret && '' !== event_settings()['key'] ? '••••••••' : $example ),
		esc_html( $help ),
		$is_secret ? 'password' : 'text'
	);
}

/** Returns the settings to store: a malformed one keeps its old value, and the page says so. */
function checked_events( $given ) {
	$kept = event_settings();
	foreach ( is_array( $given ) ? array_intersect_key( $given, $kept ) : [] as $name => $value ) {
		$clean = is_string( $value ) ? clean_event_setting( $name, trim( $value ) ) : null;
		if ( null === $clean ) {
			/* translators: %s: a setting's label */
			add_settings_error( EVENTS_OPTION, $name, sprintf( __( '%s: this cannot be used, and nothing was changed.', 'ltzd-loyalty' ), esc_html( event_fields()[ $name ][0] ) ) );
			continue;
		}
		$kept[ $name ] = $clean;
	}
	return $kept;
}

/** Returns the normalised value, or null for a malformed one. */
function clean_event_setting( $name, $value ) {
	switch ( $name ) {
		case 'key':
			if ( '' === $value || REMOVE_KEY === $value ) {
				return '' === $value ? event_settings()['key'] : '';
			}
			return preg_match( '/\A[\x21-\x7e]{8,' . LONGEST_KEY . '}\z/', $value ) ? $value : null;
		case 'rate':
			return '' === $value || preg_match( '/\A(?=.*[1-9])[0-9]{1,6}(\.[0-9]{1,8})?\z/', $value ) ? $value : null;
		case 'tracker':
			return in_array( $value, [ '', 'yes' ], true ) ? $value : null;
		default:
			return '' === $value || preg_match( '/\A[A-Za-z0-9_]{1,50}\z/', $value ) ? $value : null;
	}
}
