<?php
/**
 * The part of WordPress that the plugin uses, as stubs for PHP's built-in server.
 *
 * Input is slashed, and unslashed for the REST API, as in WordPress; headers are sent unchanged, so
 * that a line break in one would be seen. LTZD_TEST_FOLDER holds the options (options.json) and the
 * users (users.json); the arguments of the last request that was sent (last-request.json) and the mails
 * (mails.json) are written there. The option `user` is the id of the logged-in user.
 */

declare(strict_types=1);

error_reporting( E_ALL );
set_error_handler(
	static function ( int $severity, string $message, string $file, int $line ): bool {
		if ( error_reporting() & $severity ) {
			throw new ErrorException( $message, 0, $severity, $file, $line );
		}
		return true;
	}
);

$hooks = [];
$routes = [];
$admin = [ 'pages' => [], 'settings' => [], 'sections' => [], 'fields' => [], 'errors' => [], 'uninstall' => null ];

function in_folder( string $name ): string {
	return getenv( 'LTZD_TEST_FOLDER' ) . '/' . $name;
}

// --- Hooks, options, words ----------------------------------------------------------------------

function add_action( string $hook, callable $callback, int $priority = 10, int $arguments = 1 ): void {
	$GLOBALS['hooks'][ $hook ][ $priority ][] = $callback;
	ksort( $GLOBALS['hooks'][ $hook ] );
}

function callbacks( string $hook ): array {
	return array_merge( ...( $GLOBALS['hooks'][ $hook ] ?? [] ) );
}

function do_action( string $hook, ...$arguments ): void {
	foreach ( callbacks( $hook ) as $callback ) {
		$callback( ...$arguments );
	}
}

function add_filter( string $hook, callable $callback, int $priority = 10, int $arguments = 1 ): void {
	add_action( $hook, $callback, $priority );
}

function apply_filters( string $hook, $value, ...$more ) {
	foreach ( callbacks( $hook ) as $callback ) {
		$value = $callback( $value, ...$more );
	}
	return $value;
}

function register_activation_hook( string $file, callable $callback ): void {
	add_action( 'activate', $callback );
}

function register_deactivation_hook( string $file, callable $callback ): void {
	add_action( 'deactivate', $callback );
}

function wp_clear_scheduled_hook( string $hook ): void {
}

function register_uninstall_hook( string $file, callable $callback ): void {
	assert( is_string( $callback ), 'WordPress keeps the name in its database' );
	$GLOBALS['admin']['uninstall'] = $callback;
}

/** Each further site of a network has a file of its own; the option `network` has their ids. */
function options_file(): string {
	$site = $GLOBALS['switched_to'] ?? 1;
	return in_folder( 1 === $site ? 'options.json' : "options-$site.json" );
}

function options(): array {
	return json_decode( file_get_contents( options_file() ), true );
}

function is_multisite(): bool {
	return [] !== get_option( 'network', [] );
}

function get_sites( array $query ): array {
	assert( [ 'fields' => 'ids', 'number' => 0 ] === $query, 'get_sites returns 100 sites by default' );
	return get_option( 'network' );
}

function switch_to_blog( int $site ): void {
	$GLOBALS['switched_to']  = $site;
	$GLOBALS['wpdb']->prefix = 1 === $site ? 'wp_' : "wp_{$site}_";
}

function restore_current_blog(): void {
	switch_to_blog( 1 );
}

function get_option( string $name, $default = false ) {
	return options()[ $name ] ?? $default;
}

function update_option( string $name, $value ): void {
	$value = $GLOBALS['admin']['settings'][ $name ]['sanitize_callback']( $value );
	file_put_contents( in_folder( 'options.json' ), json_encode( [ $name => $value ] + options() ) );
}

function delete_option( string $name ): void {
	file_put_contents( options_file(), json_encode( (object) array_diff_key( options(), [ $name => 0 ] ) ) );
}

function get_site_option( string $name ) {
	return get_option( $name );
}

function add_site_option( string $name, $value ): void {
	file_put_contents( in_folder( 'options.json' ), json_encode( options() + [ $name => $value ] ) );
}

function delete_site_option( string $name ): void {
	delete_option( $name );
}

function __( string $text, string $domain ): string {
	return translate( $text, $domain );
}

/** Every text of another language than English begins with the language, once the translations are loaded. */
function translate( string $text, string $domain ): string {
	assert( 'ltzd-loyalty' === $domain );
	return 'en_US' === determine_locale() || ! isset( $GLOBALS['is_translated'] ) ? $text : determine_locale() . ': ' . $text;
}

function determine_locale(): string {
	return get_option( 'locale', 'en_US' );
}

function load_plugin_textdomain( string $domain, bool $deprecated, string $folder ): void {
	assert( is_dir( dirname( getenv( 'LTZD_TEST_PLUGIN' ), 2 ) . "/$folder" ) );
	$GLOBALS['is_translated'] = true;
}

function plugin_basename( string $file ): string {
	return 'ltzd-loyalty/' . basename( $file );
}

function number_format_i18n( float $number, int $decimals ): string {
	return number_format( $number, $decimals );
}

/** A transient ends with the folder of the test: no test waits for its end. */
function get_transient( string $name ) {
	return get_option( "_transient_$name" );
}

function set_transient( string $name, $value, int $seconds ): void {
	file_put_contents( in_folder( 'options.json' ), json_encode( [ "_transient_$name" => $value ] + options() ) );
}

function esc_html__( string $text, string $domain ): string {
	return esc_html( __( $text, $domain ) );
}

function esc_html_e( string $text, string $domain ): void {
	echo esc_html__( $text, $domain );
}

function __return_true(): bool {
	return true;
}

function __return_null() {
	return null;
}

function esc_html( string $text ): string {
	return htmlspecialchars( $text, ENT_QUOTES );
}

function esc_attr( string $text ): string {
	return htmlspecialchars( $text, ENT_QUOTES );
}

function esc_url( string $url ): string {
	return htmlspecialchars( $url, ENT_QUOTES );
}

function home_url( string $path = '' ): string {
	return get_option( 'home', 'https://site.example/blog' ) . $path;
}

function add_query_arg( string $name, string $value, string $url ): string {
	return "$url?$name=$value";
}

function admin_url( string $path ): string {
	return "/wp-admin/$path";
}

function rest_get_url_prefix(): string {
	return 'wp-json';
}

function wp_is_application_passwords_available(): bool {
	return get_option( 'has_application_passwords', true );
}

function wp_parse_url( string $url, int $component = -1 ) {
	return parse_url( $url, $component );
}

function untrailingslashit( string $text ): string {
	return rtrim( $text, '/\\' );
}

function nocache_headers(): void {
	header( 'Cache-Control: no-cache, must-revalidate, max-age=0, no-store, private' );
}

// --- The settings page --------------------------------------------------------------------------

function add_options_page( string $title, string $menu, string $capability, string $slug, callable $show ): void {
	$GLOBALS['admin']['pages'][ $slug ] = [ $title, $capability, $show ];
}

function get_admin_page_title(): string {
	return current( $GLOBALS['admin']['pages'] )[0];
}

function current_user_can( string $capability ): bool {
	if ( 'manage_options' === $capability ) {
		return get_option( 'is_administrator', true );
	}
	return in_array( $capability, users()[ get_current_user_id() ]['capabilities'] ?? [], true );
}

function register_setting( string $group, string $name, array $about ): void {
	$GLOBALS['admin']['settings'][ $name ] = $about;
}

function add_settings_section( string $id, string $title, callable $show, string $page ): void {
	$GLOBALS['admin']['sections'][ $page ][ $id ] = $show;
}

function add_settings_field( string $id, string $label, callable $show, string $page, string $section, array $arguments ): void {
	$GLOBALS['admin']['fields'][ $page ][] = [ $label, $show, $arguments ];
}

function add_settings_error( string $setting, string $code, string $message ): void {
	$GLOBALS['admin']['errors'][ $code ] = $message;
}

function settings_fields( string $group ): void {
	echo '<input type="hidden" name="option_page" value="' . esc_attr( $group ) . '"><input type="hidden" name="_wpnonce" value="0123456789">';
}

function do_settings_sections( string $page ): void {
	foreach ( $GLOBALS['admin']['fields'][ $page ] as list( $label, $show, $arguments ) ) {
		echo '<label for="' . esc_attr( $arguments['label_for'] ) . '">' . $label . '</label>';
		$show( $arguments );
	}
}

function submit_button(): void {
	echo '<button>Save Changes</button>';
}

// --- Users, and mail to them --------------------------------------------------------------------

const DAY_IN_SECONDS = 86400;

final class WP_User {
	public $ID;
	public $user_login;
	public $user_email;

	public function __construct( int $id ) {
		$kept             = users()[ $id ] ?? [];
		$this->ID         = [] === $kept ? 0 : $id;
		$this->user_login = $kept['login'] ?? '';
		$this->user_email = $kept['email'] ?? '';
	}
}

function users(): array {
	return json_decode( file_get_contents( in_folder( 'users.json' ) ), true );
}

function keep_user( int $id, array $user ): void {
	file_put_contents( in_folder( 'users.json' ), json_encode( [ $id => $user ] + users() ) );
}

function get_current_user_id(): int {
	return get_option( 'user', 1 );
}

function wp_get_current_user(): WP_User {
	return new WP_User( get_current_user_id() );
}

function is_user_logged_in(): bool {
	return 0 !== get_current_user_id();
}

function get_userdata( int $id ) {
	return isset( users()[ $id ] ) ? new WP_User( $id ) : false;
}

function get_user_meta( int $id, string $key, bool $is_single ) {
	assert( $is_single );
	return users()[ $id ]['meta'][ $key ] ?? '';
}

function update_user_meta( int $id, string $key, $value ): void {
	$user                 = users()[ $id ];
	$user['meta'][ $key ] = $value;
	keep_user( $id, $user );
}

function delete_user_meta( int $id, string $key ): bool {
	$user    = users()[ $id ];
	$was_set = isset( $user['meta'][ $key ] );
	unset( $user['meta'][ $key ] );
	keep_user( $id, $user );
	return $was_set;
}

function delete_metadata( string $type, int $id, string $key, string $value, bool $is_of_all ): void {
	assert( 'user' === $type && $is_of_all );
	foreach ( array_keys( users() ) as $each ) {
		delete_user_meta( $each, $key );
	}
}

function wp_update_user( array $given ) {
	$old  = get_userdata( $given['ID'] );
	$data = [ 'user_email' => $given['user_email'] ?? $old->user_email ];
	$data = apply_filters( 'wp_pre_insert_user_data', $data, true, $old->ID, $given );
	if ( [] === $data ) {
		return new WP_Error( 'empty_data', 'Not enough data to create this user.' );
	}
	keep_user( $old->ID, [ 'email' => $data['user_email'] ] + users()[ $old->ID ] );
	do_action( 'profile_update', $old->ID, $old );
	return $old->ID;
}

function wp_slash( string $text ): string {
	return $text;
}

function wp_unslash( string $text ): string {
	return stripslashes( $text );
}

function is_email( string $text ): bool {
	return false !== filter_var( $text, FILTER_VALIDATE_EMAIL );
}

function wp_specialchars_decode( string $text, int $quotes ): string {
	return htmlspecialchars_decode( $text, $quotes );
}

function wp_mail( string $to, string $subject, string $text ): bool {
	$mails = file_exists( in_folder( 'mails.json' ) ) ? json_decode( file_get_contents( in_folder( 'mails.json' ) ), true ) : [];
	file_put_contents( in_folder( 'mails.json' ), json_encode( array_merge( $mails, [ [ $to, $text ] ] ) ) );
	return true;
}

function wp_cache_delete( int $id, string $group ): void {
	assert( 'user_meta' === $group );
}

function wp_login_url( string $then ): string {
	return '/wp-login.php?redirect_to=' . rawurlencode( $then );
}

function wp_safe_redirect( string $url ): void {
	header( "Location: $url", true, 302 );
}

function wp_die( string $message, string $title, array $arguments ): void {
	http_response_code( $arguments['response'] );
	echo $message;
	exit;
}

/** Without a database every lock is free, and the queue of events is empty. */
final class Database {
	public $prefix = 'wp_';

	public function prepare( string $query, ...$values ): string {
		return $query;
	}

	public function get_var( string $query ): string {
		return '1';
	}

	public function query( string $query ): void {
		if ( 0 === strpos( $query, 'DROP' ) ) {
			file_put_contents( in_folder( 'dropped' ), "$query\n", FILE_APPEND );
		}
	}
}

$wpdb = new Database();

// --- A page with the shortcode ------------------------------------------------------------------

function add_shortcode( string $name, callable $show ): void {
	$GLOBALS['admin']['shortcodes'][ $name ] = $show;
}

function plugins_url( string $file, string $beside ): string {
	return "/wp-content/plugins/ltzd-loyalty/$file";
}

function wp_register_script( string $name, string $url, array $needs, string $version, bool $is_last ): void {
	$GLOBALS['admin']['scripts'][ $name ] = [ $url, array_filter( $needs, static fn( $need ) => 0 === strpos( $need, 'ltzd' ) ), '' ];
}

function wp_add_inline_script( string $name, string $code, string $place ): void {
	assert( 'before' === $place && isset( $GLOBALS['admin']['scripts'][ $name ] ) );
	$GLOBALS['admin']['scripts'][ $name ][2] .= $code;
}

function wp_script_is( string $name, string $state ): bool {
	assert( 'enqueued' === $state );
	return isset( $GLOBALS['admin']['enqueued'][ $name ] );
}

function wp_enqueue_script( string $name ): void {
	foreach ( $GLOBALS['admin']['scripts'][ $name ][1] as $need ) {
		wp_enqueue_script( $need );
	}
	$GLOBALS['admin']['enqueued'][ $name ] = $GLOBALS['admin']['scripts'][ $name ];
}

function wp_register_style( string $name, string $url, array $needs, string $version ): void {
	$GLOBALS['admin']['styles'][ $name ] = $url;
}

function wp_enqueue_style( string $name ): void {
	$GLOBALS['admin']['shown_styles'][ $name ] = $GLOBALS['admin']['styles'][ $name ];
}

function register_block_type( string $name, array $about ): void {
	$GLOBALS['admin']['blocks'][ $name ] = $about;
}

function get_block_wrapper_attributes( array $more ): string {
	return 'class="wp-block ' . esc_attr( $more['class'] ) . '"';
}

function get_permalink(): string {
	return home_url( '/rewards/' );
}

function rest_url( string $path ): string {
	return "/wp-json/$path";
}

function wp_create_nonce( string $action ): string {
	assert( 'wp_rest' === $action );
	return get_option( 'nonce', '0123456789' );
}

function wp_json_encode( $value, int $flags = 0 ): string {
	return json_encode( $value, $flags );
}

/** A page with these shortcodes, each with the attributes of the query. */
function show_shortcodes( string ...$names ): void {
	$content = '';
	foreach ( $names as $name ) {
		$content .= $GLOBALS['admin']['shortcodes'][ $name ]( [] === $_GET ? '' : unslashed( $_GET ) );
	}
	echo '<!doctype html><html lang="en"><head><title>Rewards</title><link rel="icon" href="data:,"></head><body>', $content;
	foreach ( $GLOBALS['admin']['shown_styles'] ?? [] as $url ) {
		echo '<link rel="stylesheet" href="', esc_attr( $url ), '">';
	}
	foreach ( $GLOBALS['admin']['enqueued'] ?? [] as list( $url, , $code ) ) {
		echo '' === $code ? '' : "<script>$code</script>", '<script src="', esc_attr( $url ), '"></script>';
	}
}

/** A block as the editor's preview and a page render it. */
function show_block( string $name ): void {
	$attributes = array_map( static fn( $about ) => $about['default'], $GLOBALS['admin']['blocks'][ $name ]['attributes'] );
	echo $GLOBALS['admin']['blocks'][ $name ]['render_callback']( $attributes );
}

// --- The REST API -------------------------------------------------------------------------------

final class WP_Error {
	private $code;
	private $message;
	private $data;

	public function __construct( string $code, string $message, $data = '' ) {
		$this->code    = $code;
		$this->message = $message;
		$this->data    = $data;
	}

	public function get_error_message(): string {
		return $this->message;
	}

	public function as_response(): WP_REST_Response {
		$body = [ 'code' => $this->code, 'message' => $this->message, 'data' => $this->data ];
		return new WP_REST_Response( $body, $this->data['status'] ?? 500 );
	}
}

function is_wp_error( $thing ): bool {
	return $thing instanceof WP_Error;
}

final class WP_REST_Request {
	/** @return string|null */
	public function get_header( string $name ) {
		$name = strtoupper( str_replace( '-', '_', $name ) );
		$key  = in_array( $name, [ 'CONTENT_TYPE', 'CONTENT_LENGTH' ], true ) ? $name : "HTTP_$name";
		return isset( $_SERVER[ $key ] ) ? stripslashes( $_SERVER[ $key ] ) : null;
	}

	public function get_route(): string {
		return substr( parse_url( $_SERVER['REQUEST_URI'], PHP_URL_PATH ), strlen( '/wp-json' ) );
	}

	public function get_query_params(): array {
		return unslashed( $_GET );
	}

	public function get_body(): string {
		return file_get_contents( 'php://input' );
	}

	public function get_param( string $name ) {
		return json_decode( $this->get_body(), true )[ $name ] ?? unslashed( $_GET )[ $name ] ?? null;
	}
}

final class WP_REST_Response {
	public $data;
	public $status;
	public $headers = [];

	public function __construct( $data, int $status ) {
		$this->data   = $data;
		$this->status = $status;
	}

	public function get_data() {
		return $this->data;
	}

	public function set_data( $data ): void {
		$this->data = $data;
	}

	public function header( string $name, string $value ): void {
		$this->headers[ $name ] = $value;
	}
}

function register_rest_route( string $namespace, string $route, array $about ): void {
	$GLOBALS['routes'][ "$about[methods] /$namespace$route" ] = $about;
}

function register_rest_field( string $type, string $name, array $about ): void {
	assert( 'user' === $type && ! isset( $about['update_callback'] ) );
	$GLOBALS['fields'][ $name ] = $about;
}

/** WordPress's own users/me: changes an address, and shows a user. */
function own_user( WP_REST_Request $request ) {
	$user = wp_get_current_user();
	if ( 0 === $user->ID ) {
		return new WP_Error( 'rest_not_logged_in', 'You are not currently logged in.', [ 'status' => 401 ] );
	}
	$email = $request->get_param( 'email' );
	$done  = null === $email ? $user->ID : wp_update_user( [ 'ID' => $user->ID, 'user_email' => $email ] );
	if ( is_wp_error( $done ) ) {
		return $done;
	}
	$user    = get_userdata( $user->ID );
	$context = null === $email ? $_GET['context'] ?? 'view' : 'edit';
	$shown   = [ 'id' => $user->ID ] + ( 'edit' === $context ? [ 'email' => $user->user_email ] : [] );
	foreach ( $GLOBALS['fields'] as $name => $about ) {
		if ( in_array( $context, $about['schema']['context'], true ) ) {
			$shown[ $name ] = $about['get_callback']( $shown, $name, $request );
		}
	}
	return new WP_REST_Response( $shown, 200 );
}

foreach ( [ 'GET', 'POST' ] as $method ) {
	$routes[ "$method /wp/v2/users/me" ] = [ 'callback' => 'own_user', 'permission_callback' => '__return_true' ];
}

function dispatched( string $path ): WP_REST_Response {
	$route = $GLOBALS['routes'][ "$_SERVER[REQUEST_METHOD] $path" ] ?? null;
	if ( null === $route ) {
		$message = 'No route was found matching the URL and request method.';
		return ( new WP_Error( 'rest_no_route', $message, [ 'status' => 404 ] ) )->as_response();
	}
	$request = new WP_REST_Request();
	if ( get_option( 'fresh_nonce', $request->get_header( 'x-wp-nonce' ) ) !== $request->get_header( 'x-wp-nonce' ) ) {
		return ( new WP_Error( 'rest_cookie_invalid_nonce', 'Cookie check failed', [ 'status' => 403 ] ) )->as_response();
	}
	assert( true === $route['permission_callback']( $request ) );
	$response = apply_filters( 'rest_request_after_callbacks', $route['callback']( $request ), $route, $request );
	return is_wp_error( $response ) ? $response->as_response() : $response;
}

function send( WP_REST_Response $response ): void {
	http_response_code( $response->status );
	header( 'Content-Type: application/json; charset=UTF-8' );
	foreach ( $response->headers as $name => $value ) {
		header( "$name: $value" );
	}
	// WordPress looks for `_links` in it and would fail with an object.
	echo isset( $response->data['_links'] ) ? '' : json_encode( $response->data );
}

// --- Requests that go out -----------------------------------------------------------------------

function wp_remote_get( string $url, array $arguments ) {
	return wp_remote_request( $url, [ 'method' => 'GET' ] + $arguments );
}

function wp_remote_request( string $url, array $arguments ) {
	file_put_contents( in_folder( 'last-request.json' ), json_encode( [ 'url' => $url ] + $arguments ) );
	$body    = $arguments['body'] ?? '';
	$headers = $arguments['headers'] ?? [];
	if ( 'POST' === $arguments['method'] ) {
		$headers['Content-Length'] = strlen( $body );
	}
	$lines = [ 'User-Agent: WordPress/6.8', 'Connection: close' ];
	foreach ( $headers as $name => $value ) {
		$lines[] = "$name: $value";
	}
	$http   = [
		'method'           => $arguments['method'],
		'header'           => implode( "\r\n", $lines ),
		'content'          => $body,
		'protocol_version' => (float) ( $arguments['httpversion'] ?? '1.0' ),
		'timeout'          => $arguments['timeout'] ?? 5,
		'follow_location'  => ( $arguments['redirection'] ?? 5 ) > 0 ? 1 : 0,
		'ignore_errors'    => true,
	];
	$stream = @fopen( $url, 'r', false, stream_context_create( [ 'http' => $http ] ) );
	if ( false === $stream ) {
		return new WP_Error( 'http_request_failed', 'Could not connect to <server>' );
	}
	$limit = $arguments['limit_response_size'] ?? -1;
	$said  = stream_get_contents( $stream, $limit );
	$about = stream_get_meta_data( $stream );
	if ( $about['timed_out'] ) {
		return new WP_Error( 'http_request_failed', 'Operation timed out' );
	}
	return received( $about['wrapper_data'], $said );
}

function received( array $lines, string $body ): array {
	$headers = [];
	foreach ( array_slice( $lines, 1 ) as $line ) {
		list( $name, $value )           = explode( ':', $line, 2 ) + [ '', '' ];
		$headers[ strtolower( $name ) ] = trim( $value );
	}
	$code = (int) explode( ' ', $lines[0] )[1];
	return [ 'headers' => $headers, 'body' => $body, 'response' => [ 'code' => $code ] ];
}

function wp_remote_retrieve_response_code( $reply ) {
	return is_wp_error( $reply ) ? '' : $reply['response']['code'];
}

function wp_remote_retrieve_body( array $reply ): string {
	return $reply['body'];
}

function wp_remote_retrieve_header( array $reply, string $name ): string {
	return $reply['headers'][ $name ] ?? '';
}

// --- A request ----------------------------------------------------------------------------------

function slashed( array $given ): array {
	array_walk_recursive( $given, static function ( &$value ) { $value = is_string( $value ) ? addslashes( $value ) : $value; } );
	return $given;
}

function unslashed( array $given ): array {
	array_walk_recursive( $given, static function ( &$value ) { $value = stripslashes( $value ); } );
	return $given;
}

function answer_page( string $path ): void {
	switch ( $path ) {
		case '/wp-admin/options-general.php':
			do_action( 'admin_menu' );
			do_action( 'admin_init' );
			$GLOBALS['admin']['pages']['ltzd-loyalty'][2]();
			return;
		case '/wp-admin/options.php':
			do_action( 'admin_init' );
			update_option( 'ltzd_loyalty', json_decode( file_get_contents( 'php://input' ), true ) );
			echo json_encode( [ 'kept' => get_option( 'ltzd_loyalty' ), 'errors' => (object) $GLOBALS['admin']['errors'] ] );
			return;
		case '/rewards/':
			show_shortcodes( 'ltzd_loyalty' );
			return;
		case '/blocks/':
			show_shortcodes( 'ltzd_streak', 'ltzd_points', 'ltzd_perks', 'ltzd_leaderboard' );
			return;
		case '/block/':
			show_block( $_GET['name'] );
			return;
		case '/editor/':
			echo $GLOBALS['admin']['scripts']['ltzd-loyalty-editor'][2];
			return;
		case '/wp-admin/admin-ajax.php':
			assert( 'rest-nonce' === $_GET['action'] );
			echo get_option( 'fresh_nonce', '0' );
			return;
		case '/wp-content/plugins/ltzd-loyalty/api.js':
		case '/wp-content/plugins/ltzd-loyalty/blocks.js':
		case '/wp-content/plugins/ltzd-loyalty/loyalty.js':
		case '/wp-content/plugins/ltzd-loyalty/loyalty.css':
			header( 'Content-Type: text/' . ( 'css' === pathinfo( $path, PATHINFO_EXTENSION ) ? 'css' : 'javascript' ) );
			readfile( dirname( getenv( 'LTZD_TEST_PLUGIN' ) ) . '/' . basename( $path ) );
			return;
		case '/':
		case '/blog/':
			do_action( 'template_redirect' );
			echo 'The home page';
			return;
		case '/uninstall':
			do_action( 'activate' );
			$GLOBALS['admin']['uninstall']();
			return;
		default:
			do_action( 'rest_api_init' );
			send( dispatched( substr( $path, strlen( '/wp-json' ) ) ) );
	}
}

$_GET    = slashed( $_GET );
$_COOKIE = slashed( $_COOKIE );
$_SERVER = slashed( $_SERVER );
define( 'ABSPATH', '/wordpress/' );
require getenv( 'LTZD_TEST_PLUGIN' );
do_action( 'init' );
answer_page( parse_url( $_SERVER['REQUEST_URI'], PHP_URL_PATH ) );
