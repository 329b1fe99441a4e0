<?php
/** Loads ltzd's tracker on the site's pages: the script that sends what event-config detects. */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const TRACKER = 'ltzd-tracker';

add_action( 'wp_enqueue_scripts', __NAMESPACE__ . '\\load_tracker' );
add_filter( 'script_loader_tag', __NAMESPACE__ . '\\tracker_tag', 10, 2 );

function load_tracker() {
	if ( 'yes' === event_settings()['tracker'] && '' !== settings()['url'] && '' !== settings()['brand'] ) {
		wp_enqueue_script( TRACKER, settings()['url'] . '/ltzd.js', [], null, false );
	}
}

/** A member's address is on the member's own pages only: they are not for a shared cache. */
function tracker_tag( $tag, $handle ) {
	if ( TRACKER !== $handle ) {
		return $tag;
	}
	$user       = wp_get_current_user();
	$attributes = sprintf( 'defer data-brand="%s" data-domain="%s"', esc_attr( settings()['brand'] ), esc_attr( site_host() ) );
	if ( $user->ID && '' !== $user->user_email ) {
		$attributes .= sprintf( ' data-email="%s"', esc_attr( $user->user_email ) );
	}
	return str_replace( '<script ', "<script $attributes ", $tag );
}
