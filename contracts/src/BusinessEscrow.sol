// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

import {IBusinessEscrow} from "./IBusinessEscrow.sol";
import {LTZ} from "./LTZ.sol";
import {Relayed} from "./Relayed.sol";

/// @title LTZ held between a user and a business
/// @notice See {IBusinessEscrow}. Holds the LTZ of all locked deals and keeps no sum of it: a sum costs gas with each call
/// and would hide what is missing.
contract BusinessEscrow is IBusinessEscrow, Relayed {
    using SafeERC20 for LTZ;

    /// @notice May approve businesses. A cold key.
    bytes32 public constant REGISTRAR_ROLE = keccak256("REGISTRAR_ROLE");

    /// @notice May release and refund any deal, to its parties. A cold key.
    bytes32 public constant SETTLER_ROLE = keccak256("SETTLER_ROLE");

    /// @notice May split any deal between its parties. A cold key.
    bytes32 public constant ARBITER_ROLE = keccak256("ARBITER_ROLE");

    bytes32 private constant RELEASE_TYPEHASH = keccak256("Release(bytes32 dealId,uint256 deadline)");
    bytes32 private constant REFUND_TYPEHASH = keccak256("Refund(bytes32 dealId,uint256 deadline)");

    uint256 private constant SHORTEST = 1 hours;
    uint256 private constant LONGEST = 365 days;

    /// @inheritdoc IBusinessEscrow
    mapping(address business => bool approved) public isBusiness;

    /// @dev Never deleted: an id is used once, for ever.
    mapping(bytes32 dealId => Deal deal) private _deals;

    /// @param ltz_ The deployed LTZ.
    /// @param admin Holds DEFAULT_ADMIN_ROLE: grants and revokes roles.
    /// @param adminDelay Seconds between the proposal of a new admin and its earliest acceptance.
    constructor(LTZ ltz_, address admin, uint48 adminDelay)
        EIP712("BusinessEscrow", "1")
        Relayed(ltz_, admin, adminDelay)
    {}

    /// @inheritdoc IBusinessEscrow
    function lockFor(address user, address business, uint256 amount, uint40 refundAfter, bytes32 dealId)
        external
        onlyRole(RELAYER_ROLE)
    {
        _lock(user, business, amount, refundAfter, dealId);
    }

    /// @inheritdoc IBusinessEscrow
    function lock(address business, uint256 amount, uint40 refundAfter, bytes32 dealId) external {
        _lock(_msgSender(), business, amount, refundAfter, dealId);
    }

    /// @inheritdoc IBusinessEscrow
    function release(bytes32 dealId) external {
        Deal memory held = _locked(dealId);
        _requireParty(dealId, held.user);
        _release(dealId, held, _msgSender());
    }

    /// @inheritdoc IBusinessEscrow
    function refund(bytes32 dealId) external {
        Deal memory held = _locked(dealId);
        _requireParty(dealId, held.business);
        _refund(dealId, held, _msgSender());
    }

    /// @inheritdoc IBusinessEscrow
    function reclaim(bytes32 dealId) external {
        Deal memory held = _locked(dealId);
        // A block's time may be off by seconds, of an hour or more.
        // forge-lint: disable-next-line(block-timestamp)
        if (block.timestamp < held.refundAfter) revert TooEarly(dealId, held.refundAfter);
        _refund(dealId, held, _msgSender());
    }

    /// @inheritdoc IBusinessEscrow
    function split(bytes32 dealId, uint256 toBusiness) external onlyRole(ARBITER_ROLE) {
        Deal memory held = _locked(dealId);
        if (toBusiness > held.amount) revert BadAmount();
        uint256 toUser = held.amount - toBusiness;
        _deals[dealId].status = Status.Split;
        emit Split(dealId, held.user, held.business, toUser, toBusiness);
        if (toUser != 0) ltz.safeTransfer(held.user, toUser);
        if (toBusiness != 0) ltz.safeTransfer(held.business, toBusiness);
    }

    /// @inheritdoc IBusinessEscrow
    function releaseWithSig(bytes32 dealId, uint256 deadline, bytes calldata sig) external {
        Deal memory held = _locked(dealId);
        _requireSigned(held.user, keccak256(abi.encode(RELEASE_TYPEHASH, dealId, deadline)), deadline, sig);
        _release(dealId, held, held.user);
    }

    /// @inheritdoc IBusinessEscrow
    function refundWithSig(bytes32 dealId, uint256 deadline, bytes calldata sig) external {
        Deal memory held = _locked(dealId);
        _requireSigned(held.business, keccak256(abi.encode(REFUND_TYPEHASH, dealId, deadline)), deadline, sig);
        _refund(dealId, held, held.business);
    }

    /// @inheritdoc IBusinessEscrow
    function setBusiness(address business, bool approved) external onlyRole(REGISTRAR_ROLE) {
        if (_losesLTZ(business)) revert BadBusiness(business);
        isBusiness[business] = approved;
        emit BusinessSet(business, approved);
    }

    /// @inheritdoc IBusinessEscrow
    function deal(bytes32 dealId) external view returns (Deal memory) {
        return _deals[dealId];
    }

    /// @notice ERC-165: of this contract, {IRelayed} and access control.
    /// @dev Anyone. Never reverts.
    function supportsInterface(bytes4 interfaceId) public view override returns (bool) {
        return interfaceId == type(IBusinessEscrow).interfaceId || super.supportsInterface(interfaceId);
    }

    /// @dev Everything is written before LTZ is called.
    function _lock(address user, address business, uint256 amount, uint40 refundAfter, bytes32 dealId) private {
        if (_deals[dealId].status != Status.None) revert DealExists(dealId);
        if (!isBusiness[business]) revert BusinessNotApproved(business);
        if (amount == 0 || amount > type(uint96).max) revert BadAmount();
        // A block's time may be off by seconds, of an hour or more.
        // forge-lint: disable-next-line(block-timestamp)
        if (refundAfter < block.timestamp + SHORTEST || refundAfter > block.timestamp + LONGEST) {
            revert BadDeadline(refundAfter);
        }
        _deals[dealId] = Deal({
            user: user,
            // It was compared with the type's maximum.
            // forge-lint: disable-next-line(unsafe-typecast)
            amount: uint96(amount),
            business: business,
            refundAfter: refundAfter,
            status: Status.Locked
        });
        emit Locked(dealId, user, business, amount, refundAfter);
        ltz.safeTransferFrom(user, address(this), amount);
    }

    function _release(bytes32 dealId, Deal memory held, address by) private {
        _deals[dealId].status = Status.Released;
        emit Released(dealId, held.user, held.business, held.amount, by);
        ltz.safeTransfer(held.business, held.amount);
    }

    function _refund(bytes32 dealId, Deal memory held, address by) private {
        _deals[dealId].status = Status.Refunded;
        emit Refunded(dealId, held.user, held.business, held.amount, by);
        ltz.safeTransfer(held.user, held.amount);
    }

    function _locked(bytes32 dealId) private view returns (Deal memory held) {
        held = _deals[dealId];
        if (held.status != Status.Locked) revert NotLocked(dealId, held.status);
    }

    function _requireParty(bytes32 dealId, address party) private view {
        address caller = _msgSender();
        if (caller != party && !hasRole(SETTLER_ROLE, caller)) revert NotAllowed(dealId, caller);
    }
}
