// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

import {BusinessEscrow} from "../../src/BusinessEscrow.sol";
import {IBusinessEscrow} from "../../src/IBusinessEscrow.sol";
import {IRelayed} from "../../src/IRelayed.sol";
import {RelayedHandler} from "./RelayedHandler.sol";

/// @notice Locks, releases, refunds, reclaims and splits; see {RelayedHandler}. Users are each other's businesses.
contract BusinessEscrowHandler is RelayedHandler {
    address private constant SETTLER = address(0x5E7);
    address private constant ARBITER = address(0xA4B);
    // Few enough that they come again.
    uint256 public constant DEALS = 12;

    /// @dev By the books.
    struct Entry {
        uint256 user;
        uint256 business;
        uint256 amount;
        uint256 refundAfter;
        IBusinessEscrow.Status status;
    }

    mapping(uint256 number => Entry) private entries;
    mapping(address business => bool) private approved;
    uint256 public donated;

    constructor(BusinessEscrow escrow) RelayedHandler(escrow) {
        for (uint256 i = 0; i < users.length; ++i) {
            approved[users[i]] = escrow.isBusiness(users[i]);
        }
    }

    function idOf(uint256 number) public pure returns (bytes32) {
        return keccak256(abi.encode("deal", number));
    }

    function entry(uint256 number) external view returns (Entry memory) {
        return entries[number];
    }

    // ---- beginnings

    function lock(uint256 who, uint256 with, uint256 skew) external {
        Way[3] memory ways = [Way.Relayed, Way.RelayedByAStranger, Way.Himself];
        for (uint256 i = 0; i < 3; ++i) {
            skew = uint256(keccak256(abi.encode(skew)));
            lockOnce(who, with, (skew >> 96) % DEALS, ways[i], skew);
        }
    }

    function lockOnce(uint256 who, uint256 with, uint256 number, Way way, uint256 skew) private {
        Entry memory wish;
        (wish.user, wish.business) = (who % users.length, with % users.length);
        wish.amount = skew % 11 == 0 ? uint256(type(uint96).max) + 1 : (skew >> 8) % 30 ether;
        wish.refundAfter = block.timestamp + 1 hours + (skew >> 16) % 20 hours;
        if (skew % 13 == 0) wish.refundAfter = block.timestamp + 1 hours - 1;
        if (skew % 17 == 0) wish.refundAfter = block.timestamp + 365 days + 1;
        bytes4 reason = refusalToLock(way, number, wish);
        address user = pick(wish.user);
        address caller = way == Way.Himself ? user : way == Way.Relayed ? RELAYER : STRANGER;
        attempt(caller, lockCall(way, number, wish), reason);
        if (reason != 0) return;
        wish.status = IBusinessEscrow.Status.Locked;
        entries[number] = wish;
        book(user, target, wish.amount);
    }

    function lockCall(Way way, uint256 number, Entry memory wish) private view returns (bytes memory) {
        (address user, address business) = (pick(wish.user), pick(wish.business));
        (bytes32 id, uint40 refundAfter) = (idOf(number), uint40(wish.refundAfter));
        if (way == Way.Himself) {
            return abi.encodeCall(IBusinessEscrow.lock, (business, wish.amount, refundAfter, id));
        }
        return abi.encodeCall(IBusinessEscrow.lockFor, (user, business, wish.amount, refundAfter, id));
    }

    function refusalToLock(Way way, uint256 number, Entry memory wish) private view returns (bytes4) {
        if (way == Way.RelayedByAStranger) return NO_ROLE;
        if (entries[number].status != IBusinessEscrow.Status.None) return IBusinessEscrow.DealExists.selector;
        if (!approved[pick(wish.business)]) return IBusinessEscrow.BusinessNotApproved.selector;
        if (wish.amount == 0 || wish.amount > type(uint96).max) return IBusinessEscrow.BadAmount.selector;
        if (wish.refundAfter < block.timestamp + 1 hours || wish.refundAfter > block.timestamp + 365 days) {
            return IBusinessEscrow.BadDeadline.selector;
        }
        return refusalToPay(pick(wish.user), wish.amount);
    }

    // ---- ends

    function release(uint256 number, uint256 who) external {
        number %= DEALS;
        Entry memory e = entries[number];
        address caller = anyoneOf(who);
        bytes4 reason = refusalToEnd(e, caller == pick(e.user) || caller == SETTLER);
        attempt(caller, abi.encodeCall(IBusinessEscrow.release, (idOf(number))), reason);
        if (reason == 0) end(number, IBusinessEscrow.Status.Released, e.amount);
    }

    function refund(uint256 number, uint256 who) external {
        number %= DEALS;
        Entry memory e = entries[number];
        address caller = anyoneOf(who);
        bytes4 reason = refusalToEnd(e, caller == pick(e.business) || caller == SETTLER);
        attempt(caller, abi.encodeCall(IBusinessEscrow.refund, (idOf(number))), reason);
        if (reason == 0) end(number, IBusinessEscrow.Status.Refunded, 0);
    }

    function reclaim(uint256 number, uint256 who) external {
        number %= DEALS;
        Entry memory e = entries[number];
        bytes4 reason = refusalToEnd(e, true);
        if (reason == 0 && block.timestamp < e.refundAfter) reason = IBusinessEscrow.TooEarly.selector;
        attempt(anyoneOf(who), abi.encodeCall(IBusinessEscrow.reclaim, (idOf(number))), reason);
        if (reason == 0) end(number, IBusinessEscrow.Status.Refunded, 0);
    }

    function split(uint256 number, uint256 who, uint256 share) external {
        number %= DEALS;
        Entry memory e = entries[number];
        share = e.amount == 0 ? share : share % (e.amount + e.amount / 8 + 1);
        address caller = anyoneOf(who);
        bytes4 reason = caller == ARBITER ? refusalToEnd(e, true) : NO_ROLE;
        if (reason == 0 && share > e.amount) reason = IBusinessEscrow.BadAmount.selector;
        attempt(caller, abi.encodeCall(IBusinessEscrow.split, (idOf(number), share)), reason);
        if (reason == 0) end(number, IBusinessEscrow.Status.Split, share);
    }

    function endBySignature(uint256 number, bool releasing, uint8 way_) external {
        Way[3] memory ways = [Way.Signed, Way.Forged, Way.Late];
        Way way = ways[way_ % 3];
        number %= DEALS;
        Entry memory e = entries[number];
        uint256 deadline = deadlineOf(way);
        bytes32 typeHash = releasing
            ? keccak256("Release(bytes32 dealId,uint256 deadline)")
            : keccak256("Refund(bytes32 dealId,uint256 deadline)");
        bytes memory sig = signatureBy(
            releasing ? e.user : e.business,
            way,
            "BusinessEscrow",
            keccak256(abi.encode(typeHash, idOf(number), deadline))
        );
        bytes memory data = releasing
            ? abi.encodeCall(IBusinessEscrow.releaseWithSig, (idOf(number), deadline, sig))
            : abi.encodeCall(IBusinessEscrow.refundWithSig, (idOf(number), deadline, sig));
        bytes4 reason = refusalToEnd(e, true);
        if (reason == 0 && way == Way.Late) reason = IRelayed.SignatureExpired.selector;
        if (reason == 0 && way == Way.Forged) reason = IRelayed.InvalidSignature.selector;
        attempt(STRANGER, data, reason);
        if (reason != 0) return;
        bookSignature(data);
        if (releasing) end(number, IBusinessEscrow.Status.Released, e.amount);
        else end(number, IBusinessEscrow.Status.Refunded, 0);
    }

    function refusalToEnd(Entry memory e, bool allowed) private pure returns (bytes4) {
        if (e.status != IBusinessEscrow.Status.Locked) return IBusinessEscrow.NotLocked.selector;
        return allowed ? bytes4(0) : IBusinessEscrow.NotAllowed.selector;
    }

    function end(uint256 number, IBusinessEscrow.Status status, uint256 toBusiness) private {
        Entry storage e = entries[number];
        e.status = status;
        book(target, pick(e.business), toBusiness);
        book(target, pick(e.user), e.amount - toBusiness);
    }

    // ---- beside the deals

    function setBusiness(uint256 who, uint256 business, uint256 allowed) external {
        // Seldom dismissed, or nobody would ever be dealt with.
        bool yes = allowed % 8 != 0;
        address caller = who % 3 == 0 ? anyoneOf(who) : REGISTRAR;
        bytes4 reason = caller == REGISTRAR ? bytes4(0) : NO_ROLE;
        attempt(caller, abi.encodeCall(IBusinessEscrow.setBusiness, (pick(business), yes)), reason);
        if (reason == 0) approved[pick(business)] = yes;
    }

    /// @dev LTZ that belongs to no deal; no deal may pay with it.
    function donate(uint256 who, uint256 amount) external {
        amount %= 1 ether;
        if (holds[pick(who)] < amount) return;
        vm.prank(pick(who));
        vm.assertTrue(IERC20(ltz).transfer(target, amount));
        book(pick(who), target, amount);
        donated += amount;
    }

    function anyoneOf(uint256 who) private view returns (address) {
        address[4] memory others = [SETTLER, ARBITER, RELAYER, STRANGER];
        return who % 2 == 0 ? pick(who >> 1) : others[(who >> 1) % others.length];
    }
}
