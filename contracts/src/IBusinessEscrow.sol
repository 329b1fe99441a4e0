// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title LTZ held between a user and a business
/// @notice A user locks LTZ for a business. It goes to the business when the user is content, back to the user when the
/// business is, or back in any case once the deal's time is over. Whatever happens, a deal pays its two parties and nobody
/// else, the whole amount, once.
///
/// Amounts are in wei of LTZ (10^-18 LTZ), times in Unix seconds. BusinessEscrow is an {IRelayed} too.
interface IBusinessEscrow {
    enum Status {
        None,
        Locked,
        Released,
        Refunded,
        Split
    }

    /// @param user Who locked and may have it back.
    /// @param amount In wei.
    /// @param business Who may receive it.
    /// @param refundAfter From this second on, anyone may send it back.
    /// @param status Locked until it is final.
    struct Deal {
        address user;
        uint96 amount;
        address business;
        uint40 refundAfter;
        Status status;
    }

    /// @notice A business may, or may no longer, be dealt with.
    event BusinessSet(address indexed business, bool approved);

    /// @notice `user` locked `amount` wei.
    event Locked(
        bytes32 indexed dealId, address indexed user, address indexed business, uint256 amount, uint40 refundAfter
    );

    /// @notice The business received `amount` wei; `by` decided so.
    event Released(bytes32 indexed dealId, address indexed user, address indexed business, uint256 amount, address by);

    /// @notice The user received `amount` wei back; `by` decided so, or was the one who reclaimed it.
    event Refunded(bytes32 indexed dealId, address indexed user, address indexed business, uint256 amount, address by);

    /// @notice An arbiter divided the amount.
    event Split(
        bytes32 indexed dealId, address indexed user, address indexed business, uint256 toUser, uint256 toBusiness
    );

    /// @notice There is, or was, a deal of this id.
    error DealExists(bytes32 id);

    /// @notice The deal is in this state, and not locked.
    error NotLocked(bytes32 id, Status s);

    /// @notice No registrar has approved the business.
    error BusinessNotApproved(address business);

    /// @notice The caller has no say in this.
    error NotAllowed(bytes32 id, address caller);

    /// @notice The deal can be reclaimed from this second on.
    error TooEarly(bytes32 id, uint40 refundAfter);

    /// @notice Nothing, more than 2^96 - 1 wei, or more than the deal holds.
    error BadAmount();

    /// @notice Not between one hour and 365 days ahead.
    error BadDeadline(uint40 refundAfter);

    /// @notice LTZ sent to this address would be lost.
    error BadBusiness(address business);

    /// @notice Lock LTZ for a user, out of his allowance.
    /// @dev Only RELAYER_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `DealExists`, `BusinessNotApproved`,
    /// `BadAmount`, `BadDeadline`, or LTZ's `ERC20InsufficientAllowance` or `ERC20InsufficientBalance`.
    /// @param user Who pays and may have it back.
    /// @param business Approved.
    /// @param amount In wei, 1 to 2^96 - 1.
    /// @param refundAfter In seconds, one hour to 365 days ahead.
    /// @param dealId Never used before. Make it random: who knows it beforehand can take it.
    function lockFor(address user, address business, uint256 amount, uint40 refundAfter, bytes32 dealId) external;

    /// @notice Lock one's own LTZ, for one's own gas.
    /// @dev Anyone. Reverts like {lockFor} but for the role.
    /// @param business Approved.
    /// @param amount In wei, 1 to 2^96 - 1.
    /// @param refundAfter In seconds, one hour to 365 days ahead.
    /// @param dealId Never used before.
    function lock(address business, uint256 amount, uint40 refundAfter, bytes32 dealId) external;

    /// @notice Pay the business.
    /// @dev Only the deal's user or SETTLER_ROLE. Reverts with `NotLocked` or `NotAllowed`.
    function release(bytes32 dealId) external;

    /// @notice Pay the user back.
    /// @dev Only the deal's business or SETTLER_ROLE. Reverts with `NotLocked` or `NotAllowed`.
    function refund(bytes32 dealId) external;

    /// @notice Pay the user back, from the second `refundAfter` on.
    /// @dev Anyone, and nobody can stop it. Reverts with `NotLocked` or `TooEarly`.
    function reclaim(bytes32 dealId) external;

    /// @notice Pay `toBusiness` to the business and the rest to the user.
    /// @dev Only ARBITER_ROLE. Reverts with `AccessControlUnauthorizedAccount`, `NotLocked` or `BadAmount`.
    /// @param dealId The deal.
    /// @param toBusiness In wei, up to the deal's amount.
    function split(bytes32 dealId, uint256 toBusiness) external;

    /// @notice Pay the business; the deal's user signed `Release(bytes32 dealId,uint256 deadline)`.
    /// @dev Anyone. Reverts with `NotLocked`, `SignatureExpired` or `InvalidSignature`. A signature works once, because
    /// a deal does. It names the deal by id alone: sign when `Locked` is final and says what was agreed, not before.
    /// @param dealId The deal.
    /// @param deadline The last second in which the signature counts.
    /// @param sig 65 bytes.
    function releaseWithSig(bytes32 dealId, uint256 deadline, bytes calldata sig) external;

    /// @notice Pay the user back; the deal's business signed `Refund(bytes32 dealId,uint256 deadline)`.
    /// @dev Anyone. Reverts with `NotLocked`, `SignatureExpired` or `InvalidSignature`.
    /// @param dealId The deal.
    /// @param deadline The last second in which the signature counts.
    /// @param sig 65 bytes.
    function refundWithSig(bytes32 dealId, uint256 deadline, bytes calldata sig) external;

    /// @notice Let users lock LTZ for a business, or no longer. Deals there are go on.
    /// @dev Only REGISTRAR_ROLE. Reverts with `AccessControlUnauthorizedAccount` or `BadBusiness`.
    /// @param business Neither zero, nor BusinessEscrow itself, nor LTZ.
    /// @param approved Whether it may be dealt with.
    function setBusiness(address business, bool approved) external;

    /// @notice Whether users may lock LTZ for it.
    /// @dev Anyone. Never reverts.
    function isBusiness(address business) external view returns (bool);

    /// @notice A deal, kept for ever; all zero where there is none.
    /// @dev Anyone. Never reverts.
    function deal(bytes32 dealId) external view returns (Deal memory);
}
