// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

import {IRelayed} from "./IRelayed.sol";
import {LTZ} from "./LTZ.sol";

/// @title What PerkNFT, PointsSale and BusinessEscrow have in common
/// @notice See {IRelayed}. Immutable, without a pause: what is stopped is a hot key, by the guardian.
abstract contract Relayed is IRelayed, AccessControlDefaultAdminRules, EIP712, Multicall {
    /// @notice May speak for users who signed nothing. Held by the operator's relay wallet.
    bytes32 public constant RELAYER_ROLE = keccak256("RELAYER_ROLE");

    /// @notice May take the roles of hot keys away at once, and nothing else.
    bytes32 public constant GUARDIAN_ROLE = keccak256("GUARDIAN_ROLE");

    /// @notice The token that is paid with.
    LTZ public immutable ltz;

    /// @param ltz_ The deployed LTZ.
    /// @param admin Holds DEFAULT_ADMIN_ROLE: grants and revokes roles.
    /// @param adminDelay Seconds between the proposal of a new admin and its earliest acceptance.
    constructor(LTZ ltz_, address admin, uint48 adminDelay) AccessControlDefaultAdminRules(adminDelay, admin) {
        // permitLTZ would revert for ever: `try` does not catch that there is no code.
        if (address(ltz_).code.length == 0) revert NotLTZ(address(ltz_));
        ltz = ltz_;
    }

    /// @inheritdoc IRelayed
    function permitLTZ(address owner, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external {
        try IERC20Permit(ltz).permit(owner, address(this), value, deadline, v, r, s) {} catch {}
    }

    /// @inheritdoc IRelayed
    function multicall(bytes[] calldata data) public override(IRelayed, Multicall) returns (bytes[] memory results) {
        return super.multicall(data);
    }

    /// @notice Take a role away. The admin of a role may always; GUARDIAN_ROLE may for the roles of hot keys.
    /// @dev Reverts with `AccessControlUnauthorizedAccount`, or for DEFAULT_ADMIN_ROLE with
    /// `AccessControlEnforcedDefaultAdminRules`. A stolen relay key is stopped by this call, without the cold admin key.
    function revokeRole(bytes32 role, address account) public virtual override {
        if (_isHot(role) && hasRole(GUARDIAN_ROLE, _msgSender())) {
            _revokeRole(role, account);
        } else {
            super.revokeRole(role, account);
        }
    }

    /// @notice ERC-165: of what the three share and of access control.
    /// @dev Anyone. Never reverts.
    function supportsInterface(bytes4 interfaceId) public view virtual override returns (bool) {
        return interfaceId == type(IRelayed).interfaceId || super.supportsInterface(interfaceId);
    }

    /// @dev Whether LTZ sent there could never leave again: neither this contract nor LTZ itself gives away its own.
    function _losesLTZ(address account) internal view returns (bool) {
        return account == address(0) || account == address(this) || account == address(ltz);
    }

    /// @dev Whether the role is made for a key that lies on a server.
    function _isHot(bytes32 role) internal view virtual returns (bool) {
        return role == RELAYER_ROLE;
    }

    /// @dev Says nothing of one use: what was signed must name a state that the call ends.
    function _requireSigned(address signer, bytes32 structHash, uint256 deadline, bytes calldata sig) internal view {
        // A block's time may be off by seconds, which is nothing to a deadline.
        // forge-lint: disable-next-line(block-timestamp)
        if (block.timestamp > deadline) revert SignatureExpired(deadline);
        (address recovered, ECDSA.RecoverError failure,) = ECDSA.tryRecoverCalldata(_hashTypedDataV4(structHash), sig);
        if (failure != ECDSA.RecoverError.NoError || recovered != signer) revert InvalidSignature();
    }
}
