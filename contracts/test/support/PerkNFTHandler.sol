// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC721} from "@openzeppelin/contracts/token/ERC721/IERC721.sol";

import {IPerkNFT} from "../../src/IPerkNFT.sol";
import {IRelayed} from "../../src/IRelayed.sol";
import {PerkNFT} from "../../src/PerkNFT.sol";
import {RelayedHandler} from "./RelayedHandler.sol";

/// @notice Claims, redeems and gives away; see {RelayedHandler}.
contract PerkNFTHandler is RelayedHandler {
    address private constant REDEEMER = address(0x4ED);
    address private constant PAYOUT = address(0x9A7);
    bytes4 private constant NO_TOKEN = bytes4(keccak256("ERC721NonexistentToken(uint256)"));
    bytes4 private constant NOT_HIS = bytes4(keccak256("ERC721InsufficientApproval(address,uint256)"));

    struct Wish {
        address user;
        uint256 id;
        uint256 maxPrice;
        uint256 expectedClaims;
        bytes32 ref;
        uint256 deadline;
    }

    PerkNFT private immutable perks;
    uint256 public immutable collections;

    mapping(uint256 id => IPerkNFT.CollectionParams) private params;
    mapping(uint256 id => uint256) public minted;
    /// @notice The highest limit there has been: a lowered one undoes no claim.
    mapping(uint256 id => uint256) public highestLimit;
    mapping(address user => mapping(uint256 id => uint256)) public claims;
    uint256[] public tokens;
    mapping(uint256 token => address) public owner;
    mapping(uint256 token => uint256) public redeemed;

    constructor(PerkNFT perks_) RelayedHandler(perks_) {
        perks = perks_;
        collections = perks_.collectionCount();
        for (uint256 id = 1; id <= collections; ++id) {
            params[id] = perks_.collection(id).params;
            raise(id);
        }
    }

    function tokenCount() external view returns (uint256) {
        return tokens.length;
    }

    // ---- claims

    /// @dev Again and again, or limits would seldom be met.
    function claim(uint256 who, uint256 id, uint256 skew) external {
        for (uint256 i = 0; i < 4; ++i) {
            skew = uint256(keccak256(abi.encode(skew)));
            claimOnce(who, id, Way((skew >> 64) % 6), skew);
        }
    }

    function claimOnce(uint256 who, uint256 id, Way way, uint256 skew) private {
        Wish memory wish;
        wish.user = pick(who);
        // One of them is none.
        wish.id = id % (collections + 1);
        wish.expectedClaims = claims[wish.user][wish.id];
        wish.maxPrice = params[wish.id].price;
        // Now and then an old count or a lower offer.
        if (skew % 5 == 0) wish.expectedClaims += (skew >> 8) % 2 == 0 ? 1 : type(uint256).max >> 1;
        if (skew % 7 == 0 && wish.maxPrice != 0) --wish.maxPrice;
        // Who would pay more pays the price all the same.
        else if (skew % 3 == 0) wish.maxPrice += 1 ether;
        wish.ref = bytes32(skew);
        wish.deadline = deadlineOf(way);
        bytes memory data = callOf(way, who, wish);
        bytes4 reason = refusal(way, wish);
        attempt(callerOf(way, wish.user), data, reason);
        if (reason != 0) return;
        if (way == Way.Signed) bookSignature(data);
        bookClaim(wish.user, wish.id);
    }

    function callOf(Way way, uint256 who, Wish memory w) private view returns (bytes memory) {
        if (way == Way.Himself) return abi.encodeCall(IPerkNFT.claim, (w.id, w.maxPrice, w.ref));
        if (way == Way.Relayed || way == Way.RelayedByAStranger) {
            return abi.encodeCall(IPerkNFT.claimFor, (w.user, w.id, w.maxPrice, w.expectedClaims, w.ref));
        }
        bytes32 typeHash = keccak256(
            "Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,bytes32 ref,uint256 deadline)"
        );
        bytes memory sig = signatureBy(who, way, "PerkNFT", keccak256(abi.encode(typeHash, w)));
        return
            abi.encodeCall(IPerkNFT.claimWithSig, (w.user, w.id, w.maxPrice, w.expectedClaims, w.ref, w.deadline, sig));
    }

    function callerOf(Way way, address user) private pure returns (address) {
        if (way == Way.Himself) return user;
        return way == Way.Relayed ? RELAYER : STRANGER;
    }

    function refusal(Way way, Wish memory w) private view returns (bytes4) {
        IPerkNFT.CollectionParams memory p = params[w.id];
        if (way == Way.RelayedByAStranger) return NO_ROLE;
        if (w.id == 0) return IPerkNFT.UnknownCollection.selector;
        if (way == Way.Relayed && p.requiresSig) return IPerkNFT.SignatureRequired.selector;
        if (way == Way.Late) return IRelayed.SignatureExpired.selector;
        if (way == Way.Forged) return IRelayed.InvalidSignature.selector;
        uint256 made = claims[w.user][w.id];
        if (way != Way.Himself && made != w.expectedClaims) return IPerkNFT.ClaimCountMismatch.selector;
        if (!p.active) return IPerkNFT.CollectionInactive.selector;
        if (p.price > w.maxPrice) return IPerkNFT.PriceAboveMax.selector;
        if (p.maxPerUser != 0 && made >= p.maxPerUser) return IPerkNFT.ClaimLimitReached.selector;
        if (p.maxSupply != 0 && minted[w.id] >= p.maxSupply) return IPerkNFT.SoldOut.selector;
        return refusalToPay(w.user, p.price);
    }

    function bookClaim(address user, uint256 id) private {
        ++claims[user][id];
        uint256 token = (id << 32) | ++minted[id];
        tokens.push(token);
        owner[token] = user;
        book(user, PAYOUT, params[id].price);
    }

    // ---- collections

    function update(uint256 who, uint256 id, uint96 price, uint8 supply, uint8 most, uint256 active) external {
        id = 1 + id % collections;
        IPerkNFT.CollectionParams memory p = params[id];
        price %= 12 ether;
        supply %= 40;
        most %= 5;
        // Seldom closed, or nobody would ever claim.
        bool open = active % 8 != 0;
        address[3] memory callers = [p.brand, REGISTRAR, pick(who)];
        address caller = callers[who % 3];
        bytes4 reason = 0;
        if (who % 3 == 2) reason = IPerkNFT.NotBrand.selector;
        else if (supply != 0 && supply < minted[id]) reason = IPerkNFT.SupplyBelowMinted.selector;
        attempt(caller, abi.encodeCall(IPerkNFT.updateCollection, (id, price, supply, most, open)), reason);
        if (reason != 0) return;
        (p.price, p.maxSupply, p.maxPerUser, p.active) = (price, supply, most, open);
        params[id] = p;
        raise(id);
    }

    function thievesTry(uint256 who, uint256 id) external {
        id = 1 + id % collections;
        address[4] memory thieves = [pick(who), params[id].brand, RELAYER, REDEEMER];
        address thief = thieves[who % 4];
        attempt(thief, abi.encodeCall(IPerkNFT.setPayout, (id, thief)), NO_ROLE);
        attempt(thief, abi.encodeCall(IPerkNFT.setBrand, (id, thief)), NO_ROLE);
        attempt(thief, abi.encodeCall(IPerkNFT.createCollection, (params[id], "")), NO_ROLE);
    }

    function raise(uint256 id) private {
        uint256 limit = params[id].maxPerUser == 0 ? type(uint16).max : params[id].maxPerUser;
        if (limit > highestLimit[id]) highestLimit[id] = limit;
    }

    // ---- tokens

    function redeem(uint256 which, uint256 who, uint256 skew) external {
        for (uint256 i = 0; i < 4; ++i) {
            skew = uint256(keccak256(abi.encode(skew)));
            redeemOnce(which, who, (skew >> 64) % 4, skew);
        }
    }

    function redeemOnce(uint256 which, uint256 who, uint256 amount, uint256 skew) private {
        (uint256 token, bool exists) = pickToken(which);
        uint256 left = params[token >> 32].charges - redeemed[token];
        address holder = skew % 6 == 0 ? pick(who) : owner[token];
        uint256 expected = skew % 5 == 0 ? left + 1 : left;
        address caller = skew % 9 == 0 ? pick(who) : REDEEMER;
        bytes4 reason = 0;
        if (caller != REDEEMER) reason = NO_ROLE;
        else if (!exists) reason = NO_TOKEN;
        else if (holder != owner[token]) reason = IPerkNFT.HolderChanged.selector;
        else if (expected != left) reason = IPerkNFT.ChargesMismatch.selector;
        else if (amount == 0) reason = IPerkNFT.ZeroAmount.selector;
        else if (amount > left) reason = IPerkNFT.InsufficientCharges.selector;
        attempt(caller, abi.encodeCall(IPerkNFT.redeemCharge, (token, holder, amount, expected, bytes32(skew))), reason);
        if (reason == 0) redeemed[token] += amount;
    }

    function give(uint256 which, uint256 to, uint256 skew) external {
        (uint256 token, bool exists) = pickToken(which);
        if (!exists) return;
        address caller = skew % 4 == 0 ? RELAYER : owner[token];
        bytes4 reason = caller == RELAYER ? NOT_HIS : bytes4(0);
        attempt(caller, abi.encodeCall(IERC721.transferFrom, (owner[token], pick(to), token)), reason);
        if (reason == 0) owner[token] = pick(to);
    }

    function pickToken(uint256 which) private view returns (uint256 token, bool exists) {
        if (tokens.length == 0 || which % 10 == 0) return ((collections << 32) | 9_999, false);
        return (tokens[which % tokens.length], true);
    }
}
