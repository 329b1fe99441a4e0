// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title What PerkNFT, PointsSale and BusinessEscrow have in common
/// @notice Users pay in LTZ and need no gas: the operator's relay wallet sends their calls. Functions ending in `For` are
/// the relay's word that the user asked; functions ending in `WithSig` need the user's EIP-712 signature and may be
/// sent by anyone, whatever became of the relay.
///
/// Amounts are in wei of LTZ (10^-18 LTZ), times in Unix seconds. A deadline counts as met in the second it names.
/// Signatures are 65 bytes (r, s, v) of an externally owned account; a contract account calls for itself, or through the
/// relay where there is no such function, as in PointsSale.
interface IRelayed {
    /// @notice The signature's deadline has passed.
    error SignatureExpired(uint256 deadline);

    /// @notice Malformed, malleable, by another account, or over something else than what was asked.
    error InvalidSignature();

    /// @notice There is no contract at the address given as LTZ.
    error NotLTZ(address account);

    /// @notice Hand a user's EIP-2612 permit to LTZ. The spender is this contract, never the caller.
    /// @dev Anyone. Never reverts, whatever LTZ answers: had somebody published the permit before, the allowance is there and the
    /// call that follows in the same {multicall} succeeds; without an allowance that call says so.
    /// @param owner Who signed the permit.
    /// @param value In wei.
    /// @param deadline In seconds.
    /// @param v Of the signature.
    /// @param r Of the signature.
    /// @param s Of the signature.
    function permitLTZ(address owner, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;

    /// @notice Several calls to this contract in one transaction, each as the caller, all or nothing.
    /// @dev Anyone. Reverts with what the first failing call reverts with.
    /// @param data Encoded calls, in order.
    /// @return results What each call returned, encoded.
    function multicall(bytes[] calldata data) external returns (bytes[] memory results);
}
