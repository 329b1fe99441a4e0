<?php
/**
 * The shortcode [ltzd_loyalty]: a member's wallet, its link, the e-mail address, and the perks.
 *
 * The markup holds every text; loyalty.js inserts ltzd's answers as text, never as markup. The scripts
 * of the blocks (blocks.php) use the same routes, by api.js.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const SHORTCODE = 'ltzd_loyalty';
const SCRIPT    = 'ltzd-loyalty';
const API       = 'ltzd-loyalty-api';
const VERSION   = '1.2.0';

add_action( 'init', __NAMESPACE__ . '\\register_page' );

function register_page() {
	wp_register_script( API, plugins_url( 'api.js', __FILE__ ), [], VERSION, true );
	wp_register_script( SCRIPT, plugins_url( 'loyalty.js', __FILE__ ), [ API ], VERSION, true );
	add_shortcode( SHORTCODE, __NAMESPACE__ . '\\show_member' );
}

/** Loads a script of the member's page, and once what all of them need. */
function load_script( $name ) {
	if ( ! wp_script_is( $name, 'enqueued' ) && ! wp_script_is( API, 'enqueued' ) ) {
		$page = [
			'root'    => rest_url( LTZD_LOYALTY_NAMESPACE . '/v1/' ),
			'nonce'   => wp_create_nonce( 'wp_rest' ),
			'renewal' => admin_url( 'admin-ajax.php?action=rest-nonce' ),
			'me'      => rest_url( 'wp/v2/users/me' ),
			'member'  => get_current_user_id(),
			'words'   => words(),
		];
		wp_add_inline_script( API, 'window.ltzdLoyaltyPage = ' . as_script( $page ) . ';', 'before' );
		wp_enqueue_script( API );
	}
	wp_enqueue_script( $name );
}

/** JSON that ends no script element. */
function as_script( $value ) {
	return (string) wp_json_encode( $value, JSON_HEX_TAG | JSON_HEX_AMP | JSON_UNESCAPED_SLASHES );
}

/** Returns the shortcode's markup, or a link to the log-in for a visitor without one. */
function show_member() {
	if ( ! is_user_logged_in() ) {
		return sprintf( '<p class="ltzd-loyalty"><a href="%s">%s</a></p>', esc_url( wp_login_url( (string) get_permalink() ) ), esc_html__( 'Log in to see your rewards.', 'ltzd-loyalty' ) );
	}
	load_script( SCRIPT );
	$user = wp_get_current_user();
	ob_start();
	?>
<div class="ltzd-loyalty" data-member>
	<p role="status" aria-live="polite" data-part="news"></p>
	<h3><?php esc_html_e( 'Your wallet', 'ltzd-loyalty' ); ?></h3>
	<dl>
		<dt><?php esc_html_e( 'In the wallet', 'ltzd-loyalty' ); ?></dt><dd data-part="balance">…</dd>
		<dt><?php esc_html_e( 'To spend here', 'ltzd-loyalty' ); ?></dt><dd data-part="spendable">…</dd>
	</dl>
	<div data-part="linked" hidden>
		<p data-part="link"></p>
		<button type="button" data-part="unlink"><?php esc_html_e( 'End the link', 'ltzd-loyalty' ); ?></button>
	</div>
	<form data-part="unlinked" hidden>
		<label><?php esc_html_e( 'Code from your wallet app', 'ltzd-loyalty' ); ?>
			<input name="code" required maxlength="32" autocomplete="off" autocapitalize="characters" spellcheck="false"></label>
		<button><?php esc_html_e( 'Link the wallet', 'ltzd-loyalty' ); ?></button>
		<p><?php esc_html_e( 'A link lets you spend here what else is in your wallet, up to the amount a day that your wallet app has set.', 'ltzd-loyalty' ); ?></p>
	</form>
	<h3><?php esc_html_e( 'Your e-mail address', 'ltzd-loyalty' ); ?></h3>
	<p><?php echo esc_html( is_confirmed( $user ) ? __( 'It is confirmed. Another address takes its place once you open the link that is mailed to it.', 'ltzd-loyalty' ) : __( 'It is not confirmed yet. What came to your wallet by this address can be spent here once you have confirmed it.', 'ltzd-loyalty' ) ); ?></p>
	<form data-part="confirm">
		<label><?php esc_html_e( 'E-mail address', 'ltzd-loyalty' ); ?>
			<input name="email" type="email" required maxlength="100" autocomplete="email" value="<?php echo esc_attr( $user->user_email ); ?>"></label>
		<button><?php esc_html_e( 'Confirm my e-mail address', 'ltzd-loyalty' ); ?></button>
	</form>
	<h3><?php esc_html_e( 'Perks', 'ltzd-loyalty' ); ?></h3>
	<ul data-part="perks"></ul>
	<?php show_codes(); ?>
	<template data-part="perk"><li><span data-part="name"></span> <span data-part="price"></span> <button type="button"><?php esc_html_e( 'Redeem', 'ltzd-loyalty' ); ?></button></li></template>
</div>
	<?php
	return (string) ob_get_clean();
}

/** The codes of this tab's redemptions, which api.js fills in. */
function show_codes() {
	echo '<div data-part="codes" hidden><p>' . esc_html__( 'Your codes', 'ltzd-loyalty' ) . '</p><ul></ul></div>';
}

/** The texts of the scripts; %s is an amount with its unit, a name, or a day, and %d a number. */
function words() {
	return [
		/* translators: %s: a number of points. LTZ is their name. */
		'amount'    => __( '%s LTZ', 'ltzd-loyalty' ),
		'free'      => __( 'Free', 'ltzd-loyalty' ),
		/* translators: %s: a perk's name */
		'redeem'    => __( 'Redeem %s', 'ltzd-loyalty' ),
		/* translators: %s: a confirmation code */
		'code'      => __( 'Your code: %s', 'ltzd-loyalty' ),
		'moment'    => __( 'One moment, please …', 'ltzd-loyalty' ),
		'waiting'   => __( 'Your order is in, and the next block confirms it. Press Redeem again to see your code.', 'ltzd-loyalty' ),
		/* translators: %s: an amount, such as 15 LTZ */
		'price'     => __( 'The price is now %s. Press Redeem again to take it at that price.', 'ltzd-loyalty' ),
		'linked'    => __( 'Your wallet is linked.', 'ltzd-loyalty' ),
		'unlinked'  => __( 'The link is ended.', 'ltzd-loyalty' ),
		/* translators: 1: a day, 2: an amount, 3: an amount */
		'allowance' => __( 'Linked until %1$s: up to %2$s a day from the rest of your wallet, of which %3$s are left today.', 'ltzd-loyalty' ),
		'mailed'    => __( 'A link was mailed to this address. Open it within a day, in this browser.', 'ltzd-loyalty' ),
		'confirmed' => __( 'Your e-mail address is confirmed.', 'ltzd-loyalty' ),
		/* translators: %s: an amount */
		'earned'    => __( 'You have checked in, and earned %s.', 'ltzd-loyalty' ),
		'again'     => __( 'You have checked in already today.', 'ltzd-loyalty' ),
		/* translators: 1: a number of days, 2: an amount */
		'next'      => __( 'Next milestone: %1$d days, for %2$s.', 'ltzd-loyalty' ),
		/* translators: 1: a number of days, 2: an amount */
		'reached'   => __( 'Day %1$d: %2$s', 'ltzd-loyalty' ),
		/* translators: %d: a number of days */
		'claim'     => __( 'Claim the milestone of %d days', 'ltzd-loyalty' ),
		/* translators: %s: an amount */
		'claimed'   => __( 'You have claimed %s.', 'ltzd-loyalty' ),
		'other'     => __( 'Another member is logged in at this site by now. Please load this page again.', 'ltzd-loyalty' ),
		'silence'   => __( 'The loyalty programme gives no answer. Please try again in a moment.', 'ltzd-loyalty' ),
	];
}
