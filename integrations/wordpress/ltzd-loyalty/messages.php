<?php
/**
 * ltzd's messages to members, in the site's language.
 *
 * ltzd answers in English with a code. A sentence that is listed here is translated as a whole;
 * another one is replaced by the sentence of its code. A site in English shows ltzd's own words.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

add_action( 'init', __NAMESPACE__ . '\\load_translations', 0 ); // The blocks and their titles are registered after it.
add_filter( 'rest_request_after_callbacks', __NAMESPACE__ . '\\translate_answer', 20, 3 );

/** The translations are the plugin's own: a directory of translations does not know it. */
function load_translations() {
	load_plugin_textdomain( 'ltzd-loyalty', false, dirname( plugin_basename( __FILE__ ) ) . '/languages' );
}

function translate_answer( $response, $handler, $request ) {
	$data = $response instanceof \WP_REST_Response ? $response->get_data() : null;
	if ( ! is_own_route( $request->get_route() ) || ! isset( $data['code'], $data['message'] ) || 0 === strpos( determine_locale(), 'en' ) ) {
		return $response;
	}
	$data['message'] = translated( $data['code'], $data['message'] );
	$response->set_data( $data );
	return $response;
}

function is_own_route( $route ) {
	return 0 === strpos( (string) $route, '/' . LTZD_LOYALTY_NAMESPACE . '/v1/' );
}

function translated( $code, $message ) {
	foreach ( sentences() as list( $english, $own ) ) {
		$pattern = preg_replace( '/%[0-9]\\\\\$s/', '(.+)', preg_quote( $english, '/' ) );
		if ( preg_match( "/\\A$pattern\\z/su", $message, $values ) ) {
			return vsprintf( $own, array_slice( $values, 1 ) );
		}
	}
	$by_code = messages_by_code();
	return isset( $by_code[ $code ] ) ? $by_code[ $code ] : $message;
}

function messages_by_code() {
	return [
		'not_configured'         => __( 'Loyalty is not set up on this site yet.', 'ltzd-loyalty' ),
		'not_logged_in'          => __( 'You are not logged in at this site.', 'ltzd-loyalty' ),
		'checkin_failed'         => __( 'The check-in did not work. Please try again later.', 'ltzd-loyalty' ),
		'redeem_failed'          => __( 'The perk could not be redeemed. Please try again later.', 'ltzd-loyalty' ),
		'claim_failed'           => __( 'The milestone could not be claimed.', 'ltzd-loyalty' ),
		'link_failed'            => __( 'The wallet could not be linked.', 'ltzd-loyalty' ),
		'rest_too_many_requests' => __( 'That was too often. Please wait a while.', 'ltzd-loyalty' ),
		'api_error'              => __( 'The loyalty programme gives no answer. Please try again in a moment.', 'ltzd-loyalty' ),
		'internal_server_error'  => __( 'Something went wrong. Please try again later.', 'ltzd-loyalty' ),
	];
}

/** A sentence of ltzd and its translation. %1$s stands for an amount or a number in the sentence. */
function pair( $english ) {
	return [ $english, translate( $english, 'ltzd-loyalty' ) ];
}

function sentences() {
	return [
		pair( 'Another transaction of this wallet came first.' ),
		pair( 'Perks can be redeemed again tomorrow: today\'s transactions have all been used.' ),
		pair( 'Rewards are switched off here at the moment. Please try again later.' ),
		pair( 'Something went wrong. Please try again later.' ),
		pair( 'The perk could not be redeemed. No LTZ were taken.' ),
		pair( 'The price is now %1$s.' ),
		pair( 'The price of this perk has just changed. Please look at it and try again.' ),
		pair( 'There is no such milestone.' ),
		pair( 'This code is wrong, or has expired, or was used. Please get a new one.' ),
		pair( 'This is not available at the moment. Please try again soon.' ),
		pair( 'This perk costs %1$s, but this site may spend only %2$s of your wallet. Link your wallet to use more of it.' ),
		pair( 'This perk costs %1$s, but your link lets this site spend only %2$s now. Please try again tomorrow, or link your wallet again with a higher daily allowance.' ),
		pair( 'This perk costs %1$s, but your wallet holds %2$s.' ),
		pair( 'This perk has to be approved with your own wallet, and cannot be redeemed from this site.' ),
		pair( 'This perk is for members of the chat community. Please link your account there first.' ),
		pair( 'This perk is no longer offered.' ),
		pair( 'This perk is sold out.' ),
		pair( 'This reward is larger than can be minted here. Please tell the site\'s operator.' ),
		pair( 'This site answers slowly at the moment. Please try again soon.' ),
		pair( 'This site cannot tell who you are at the moment. Please try again soon.' ),
		pair( 'This site offers no such perk.' ),
		pair( 'Today\'s rewards have all been given out. Please come back tomorrow.' ),
		pair( 'Too many people use this at the moment. Please try again in a few seconds.' ),
		pair( 'You are not logged in at this site.' ),
		pair( 'You do not meet the conditions of this perk yet.' ),
		pair( 'You have claimed this milestone already.' ),
		pair( 'You have not reached this milestone yet: it takes a streak of %1$s, and your longest is %2$s.' ),
		pair( 'You have redeemed this perk as often as it allows.' ),
		pair( 'Your account at this site has just changed. Please try again.' ),
		pair( 'Your account at this site was linked to another wallet already. Please use a code of that wallet\'s owner.' ),
		pair( 'Your account of the chat community has got this perk for another wallet already.' ),
		pair( 'Your wallet does not hold enough LTZ for this perk.' ),
		pair( 'Your wallet has no transactions left for today. Please try again tomorrow.' ),
		pair( 'Your wallet signs with its own key alone. Please redeem this perk with your wallet.' ),
	];
}
