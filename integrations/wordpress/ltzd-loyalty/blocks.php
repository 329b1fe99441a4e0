<?php
/**
 * Four blocks, each also a shortcode: a member's streak with its check-in, a member's points, the
 * perks, and a leaderboard.
 *
 * PHP renders the perks and the leaderboard, which are the same for everybody: ltzd's answer is kept
 * for a minute. What belongs to a member is filled in by blocks.js, so that a page does not wait for
 * ltzd while ltzd waits for this site. Visitors load no script.
 */

namespace Ltzd\Loyalty;

defined( 'ABSPATH' ) || exit;

const BLOCK_STYLE  = 'ltzd-loyalty-blocks';
const BLOCK_SCRIPT = 'ltzd-loyalty-blocks';
const EDITOR       = 'ltzd-loyalty-editor';

const SECONDS_TO_RENDER  = 3;
const SECONDS_KEPT       = 60;
const SECONDS_KEPT_FAULT = 15; // While ltzd is away, one page in this time waits for it.
const MOST_RANKS         = 100;

const METRICS = [ 'ltz_earned', 'activity', 'streak' ];
const PERIODS = [ 'week', 'month', 'all' ];
const RANKING = [ 'metric' => 'ltz_earned', 'period' => 'week', 'limit' => 10 ];

add_action( 'init', __NAMESPACE__ . '\\register_blocks' );

/** Each block's title, description, icon, function, and the choices of the editor. */
function blocks() {
	return [
		'streak'      => [ __( 'Loyalty: streak', 'ltzd-loyalty' ), __( 'The member’s streak, the check-in, and milestones to claim.', 'ltzd-loyalty' ), 'calendar-alt', 'show_streak', [] ],
		'points'      => [ __( 'Loyalty: points', 'ltzd-loyalty' ), __( 'The points in the member’s wallet.', 'ltzd-loyalty' ), 'tickets-alt', 'show_points', [] ],
		'perks'       => [ __( 'Loyalty: perks', 'ltzd-loyalty' ), __( 'The perks that members can redeem.', 'ltzd-loyalty' ), 'awards', 'show_perks', [] ],
		'leaderboard' => [ __( 'Loyalty: leaderboard', 'ltzd-loyalty' ), __( 'The members with the most points, rewards, or days.', 'ltzd-loyalty' ), 'chart-bar', 'show_leaderboard', ranking_choices() ],
	];
}

function register_blocks() {
	wp_register_style( BLOCK_STYLE, plugins_url( 'loyalty.css', __FILE__ ), [], VERSION );
	wp_register_script( BLOCK_SCRIPT, plugins_url( 'blocks.js', __FILE__ ), [ API ], VERSION, true );
	$needs = [ 'wp-blocks', 'wp-element', 'wp-block-editor', 'wp-components', 'wp-server-side-render' ];
	wp_register_script( EDITOR, plugins_url( 'editor.js', __FILE__ ), $needs, VERSION, true );
	$shown = [];
	foreach ( blocks() as $name => list( $title, $description, $icon, $show, $choices ) ) {
		$attributes = [] === $choices ? [] : ranking_attributes();
		$shown[]    = compact( 'title', 'description', 'icon', 'attributes', 'choices' ) + [ 'name' => "ltzd-loyalty/$name" ];
		register_block_type(
			"ltzd-loyalty/$name",
			[
				'api_version'     => 2,
				'title'           => $title,
				'description'     => $description,
				'category'        => 'widgets',
				'attributes'      => $attributes,
				'supports'        => [
					'html'       => false,
					'align'      => [ 'wide', 'full' ],
					'color'      => [ 'text' => true, 'background' => true, 'link' => true ],
					'spacing'    => [ 'margin' => true, 'padding' => true ],
					'typography' => [ 'fontSize' => true ],
				],
				'style'           => BLOCK_STYLE,
				'editor_script'   => EDITOR,
				'render_callback' => static function ( $given ) use ( $show ) {
					return call_user_func( __NAMESPACE__ . "\\$show", ranking( $given ), get_block_wrapper_attributes( [ 'class' => 'ltzd-block' ] ) );
				},
			]
		);
		add_shortcode(
			"ltzd_$name",
			static function ( $given ) use ( $show ) {
				return call_user_func( __NAMESPACE__ . "\\$show", ranking( $given ), 'class="ltzd-block"' );
			}
		);
	}
	wp_add_inline_script( EDITOR, 'window.ltzdLoyaltyBlocks = ' . as_script( $shown ) . ';', 'before' );
}

// --- A member's blocks --------------------------------------------------------------------------

function show_streak( $unused, $wrapper ) {
	if ( ! is_user_logged_in() ) {
		return log_in_first( 'streak', $wrapper );
	}
	load_for_members();
	ob_start();
	?>
<div <?php echo $wrapper; ?> data-ltzd-block="streak" data-member>
	<dl><dt><?php esc_html_e( 'Streak, in days', 'ltzd-loyalty' ); ?></dt><dd data-part="days">…</dd></dl>
	<p data-part="next" hidden></p>
	<button type="button" data-part="check-in"><?php esc_html_e( 'Check in', 'ltzd-loyalty' ); ?></button>
	<ul data-part="milestones" hidden></ul>
	<template data-part="milestone"><li><span></span> <button type="button"><?php esc_html_e( 'Claim', 'ltzd-loyalty' ); ?></button></li></template>
	<?php show_news(); ?>
</div>
	<?php
	return (string) ob_get_clean();
}

function show_points( $unused, $wrapper ) {
	if ( ! is_user_logged_in() ) {
		return log_in_first( 'points', $wrapper );
	}
	load_for_members();
	ob_start();
	?>
<div <?php echo $wrapper; ?> data-ltzd-block="points" data-member>
	<dl>
		<dt><?php esc_html_e( 'In the wallet', 'ltzd-loyalty' ); ?></dt><dd data-part="balance">…</dd>
		<dt><?php esc_html_e( 'To spend here', 'ltzd-loyalty' ); ?></dt><dd data-part="spendable">…</dd>
	</dl>
	<?php show_news(); ?>
</div>
	<?php
	return (string) ob_get_clean();
}

function log_in_first( $name, $wrapper ) {
	wp_enqueue_style( BLOCK_STYLE );
	$link = sprintf( '<a href="%s">%s</a>', esc_url( wp_login_url( (string) get_permalink() ) ), esc_html__( 'Log in to see your rewards.', 'ltzd-loyalty' ) );
	return sprintf( '<div %s data-ltzd-block="%s"><p>%s</p></div>', $wrapper, esc_attr( $name ), $link );
}

function show_news() {
	echo '<p role="status" aria-live="polite" data-part="news"></p><noscript><p>' . esc_html__( 'This part of the page needs JavaScript.', 'ltzd-loyalty' ) . '</p></noscript>';
}

function load_for_members() {
	wp_enqueue_style( BLOCK_STYLE );
	load_script( BLOCK_SCRIPT );
}

// --- Blocks for everybody -----------------------------------------------------------------------

function show_perks( $unused, $wrapper ) {
	wp_enqueue_style( BLOCK_STYLE );
	$answer = public_answer( 'perks', [] );
	if ( null === $answer || ! isset( $answer['perks'] ) || ! is_array( $answer['perks'] ) ) {
		return no_content( 'perks', $wrapper );
	}
	$is_member = is_user_logged_in();
	if ( $is_member ) {
		load_for_members();
	}
	ob_start();
	?>
<div <?php echo $wrapper; ?> data-ltzd-block="perks"<?php echo $is_member ? ' data-member' : ''; ?>>
	<ul>
	<?php foreach ( array_filter( $answer['perks'], __NAMESPACE__ . '\\is_perk' ) as $perk ) : ?>
		<li data-perk="<?php echo esc_attr( $perk['id'] ); ?>" data-cost="<?php echo esc_attr( (string) (float) $perk['cost'] ); ?>" data-available="<?php echo empty( $perk['available'] ) ? 'false' : 'true'; ?>">
			<span><?php echo esc_html( $perk['name'] ); ?></span>
			<span data-part="price"><?php echo esc_html( price( $perk['cost'] ) ); ?></span>
			<?php if ( $is_member ) : ?>
			<button type="button" hidden aria-label="<?php echo esc_attr( sprintf( words()['redeem'], $perk['name'] ) ); ?>"><?php esc_html_e( 'Redeem', 'ltzd-loyalty' ); ?></button>
			<?php endif; ?>
		</li>
	<?php endforeach; ?>
	</ul>
	<?php
	if ( $is_member ) {
		show_codes();
		show_news();
	}
	?>
</div>
	<?php
	return (string) ob_get_clean();
}

function is_perk( $perk ) {
	return is_array( $perk ) && isset( $perk['id'], $perk['name'], $perk['cost'] ) && is_string( $perk['id'] ) && is_string( $perk['name'] ) && is_numeric( $perk['cost'] );
}

function show_leaderboard( $ranking, $wrapper ) {
	wp_enqueue_style( BLOCK_STYLE );
	$answer = public_answer( 'leaderboard', $ranking );
	if ( null === $answer || ! isset( $answer['leaderboard'] ) || ! is_array( $answer['leaderboard'] ) ) {
		return no_content( 'leaderboard', $wrapper );
	}
	$entries = array_filter( $answer['leaderboard'], __NAMESPACE__ . '\\is_entry' );
	if ( [] === $entries ) {
		return no_content( 'leaderboard', $wrapper, __( 'Nobody is on this list yet.', 'ltzd-loyalty' ) );
	}
	ob_start();
	?>
<div <?php echo $wrapper; ?> data-ltzd-block="leaderboard">
	<table>
		<caption><?php echo esc_html( periods()[ $ranking['period'] ] ); ?></caption>
		<thead><tr>
			<th scope="col"><?php esc_html_e( 'Rank', 'ltzd-loyalty' ); ?></th>
			<th scope="col"><?php esc_html_e( 'Member', 'ltzd-loyalty' ); ?></th>
			<th scope="col"><?php echo esc_html( metrics()[ $ranking['metric'] ] ); ?></th>
		</tr></thead>
		<tbody>
		<?php foreach ( $entries as $entry ) : ?>
			<tr><td><?php echo esc_html( number( $entry['rank'] ) ); ?></td><th scope="row"><?php echo esc_html( $entry['username'] ); ?></th><td><?php echo esc_html( number( $entry['value'] ) ); ?></td></tr>
		<?php endforeach; ?>
		</tbody>
	</table>
</div>
	<?php
	return (string) ob_get_clean();
}

function is_entry( $entry ) {
	return is_array( $entry ) && isset( $entry['rank'], $entry['username'], $entry['value'] ) && is_string( $entry['username'] ) && is_numeric( $entry['rank'] ) && is_numeric( $entry['value'] );
}

function no_content( $name, $wrapper, $text = null ) {
	return sprintf( '<div %s data-ltzd-block="%s"><p>%s</p></div>', $wrapper, esc_attr( $name ), esc_html( null === $text ? words()['silence'] : $text ) );
}

/** Returns ltzd's answer as an array, or null without one. */
function public_answer( $name, $query ) {
	if ( '' === settings()['url'] ) {
		return null;
	}
	$url  = url_of( $name ) . ( [] === $query ? '' : '?' . http_build_query( $query, '', '&', PHP_QUERY_RFC3986 ) );
	$key  = 'ltzd_' . md5( site_host() . ' ' . $url );
	$kept = get_transient( $key );
	if ( is_array( $kept ) ) {
		return isset( $kept['success'] ) ? $kept : null;
	}
	$headers = [ 'Host' => site_host(), 'Accept' => 'application/json' ];
	$reply   = wp_remote_get( $url, [ 'headers' => $headers ] + with_limits( SECONDS_TO_RENDER ) );
	$answer  = 200 === (int) wp_remote_retrieve_response_code( $reply ) ? json_decode( wp_remote_retrieve_body( $reply ), true ) : null;
	$is_good = is_array( $answer ) && ! empty( $answer['success'] );
	set_transient( $key, $is_good ? $answer : [], $is_good ? SECONDS_KEPT : SECONDS_KEPT_FAULT );
	return $is_good ? $answer : null;
}

// --- The leaderboard's choices ------------------------------------------------------------------

/** Returns a ranking that ltzd accepts: a value that it would refuse becomes the default. */
function ranking( $given ) {
	$given = is_array( $given ) ? array_intersect_key( $given, RANKING ) + RANKING : RANKING;
	return [
		'metric' => in_array( $given['metric'], METRICS, true ) ? $given['metric'] : RANKING['metric'],
		'period' => in_array( $given['period'], PERIODS, true ) ? $given['period'] : RANKING['period'],
		'limit'  => is_numeric( $given['limit'] ) ? max( 1, min( MOST_RANKS, (int) $given['limit'] ) ) : RANKING['limit'],
	];
}

function ranking_attributes() {
	return [
		'metric' => [ 'type' => 'string', 'enum' => METRICS, 'default' => RANKING['metric'] ],
		'period' => [ 'type' => 'string', 'enum' => PERIODS, 'default' => RANKING['period'] ],
		'limit'  => [ 'type' => 'integer', 'minimum' => 1, 'maximum' => MOST_RANKS, 'default' => RANKING['limit'] ],
	];
}

function metrics() {
	return [
		'ltz_earned' => __( 'Points earned', 'ltzd-loyalty' ),
		'activity'   => __( 'Rewards', 'ltzd-loyalty' ),
		'streak'     => __( 'Longest streak, in days', 'ltzd-loyalty' ),
	];
}

function periods() {
	return [
		'week'  => __( 'This week', 'ltzd-loyalty' ),
		'month' => __( 'This month', 'ltzd-loyalty' ),
		'all'   => __( 'Of all time', 'ltzd-loyalty' ),
	];
}

function ranking_choices() {
	$options = static function ( $labels ) {
		$pairs = [];
		foreach ( $labels as $value => $label ) {
			$pairs[] = compact( 'value', 'label' );
		}
		return $pairs;
	};
	return [
		[ 'attribute' => 'metric', 'label' => __( 'Ranked by', 'ltzd-loyalty' ), 'options' => $options( metrics() ) ],
		[ 'attribute' => 'period', 'label' => __( 'Period', 'ltzd-loyalty' ), 'options' => $options( periods() ) ],
		[ 'attribute' => 'limit', 'label' => __( 'Members shown', 'ltzd-loyalty' ), 'most' => MOST_RANKS ],
	];
}

// --- Numbers ------------------------------------------------------------------------------------

function number( $value ) {
	return number_format_i18n( (float) $value, floor( (float) $value ) === (float) $value ? 0 : 2 );
}

function price( $cost ) {
	return 0.0 === (float) $cost ? words()['free'] : sprintf( words()['amount'], number( $cost ) );
}
