// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../../src/IPointsSale.sol";
import {IRelayed} from "../../src/IRelayed.sol";
import {PointsSale} from "../../src/PointsSale.sol";
import {RelayedHandler} from "./RelayedHandler.sol";

/// @notice Puts up for sale and buys; see {RelayedHandler}.
contract PointsSaleHandler is RelayedHandler {
    address private constant BRAND = address(0xB4A2D);
    address private constant PAYOUT = address(0x9A7);
    uint256 public constant ITEMS = 4;

    struct Order {
        address buyer;
        uint256 itemId;
        uint256 quantity;
        uint256 maxTotal;
        bytes32 ref;
        uint256 deadline;
    }

    /// @dev By the books; one without a payout is none.
    mapping(uint256 itemId => IPointsSale.Item) private items;
    mapping(uint256 itemId => uint256) public sold;
    mapping(address buyer => mapping(bytes32 ref => bool)) private placed;

    constructor(PointsSale sale) RelayedHandler(sale) {}

    /// @dev Again and again, or limits would seldom be met. There is no way to buy for oneself but a signature.
    function buy(uint256 who, uint256 itemId, uint256 skew) external {
        for (uint256 i = 0; i < 4; ++i) {
            skew = uint256(keccak256(abi.encode(skew)));
            buyOnce(who, itemId, (skew >> 96) % 12, Way((skew >> 64) % 5), skew);
        }
    }

    function buyOnce(uint256 who, uint256 itemId, uint256 quantity, Way way, uint256 skew) private {
        Order memory order;
        order.buyer = pick(who);
        order.itemId = itemId % ITEMS;
        order.quantity = quantity;
        order.maxTotal = order.quantity * items[order.itemId].price;
        if (skew % 7 == 0 && order.maxTotal != 0) --order.maxTotal;
        // Who would pay more pays the price all the same.
        else if (skew % 3 == 0) order.maxTotal += 1 ether;
        // Few enough that they come again, on both sides of a word's end.
        order.ref = bytes32(250 + (skew >> 8) % 24);
        order.deadline = deadlineOf(way);
        bytes memory data = callOf(way, who, order);
        bytes4 reason = refusal(way, order);
        attempt(way == Way.Relayed ? RELAYER : STRANGER, data, reason);
        if (reason != 0) return;
        if (way == Way.Signed) bookSignature(data);
        bookOrder(order);
    }

    function callOf(Way way, uint256 who, Order memory o) private view returns (bytes memory) {
        if (way == Way.Relayed || way == Way.RelayedByAStranger) {
            return abi.encodeCall(IPointsSale.buyFor, (o.buyer, o.itemId, o.quantity, o.maxTotal, o.ref));
        }
        bytes32 typeHash = keccak256(
            "Buy(address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,uint256 deadline)"
        );
        bytes memory sig = signatureBy(who, way, "PointsSale", keccak256(abi.encode(typeHash, o)));
        return
            abi.encodeCall(IPointsSale.buyWithSig, (o.buyer, o.itemId, o.quantity, o.maxTotal, o.ref, o.deadline, sig));
    }

    function refusal(Way way, Order memory o) private view returns (bytes4) {
        IPointsSale.Item memory item = items[o.itemId];
        if (way == Way.RelayedByAStranger) return NO_ROLE;
        if (way == Way.Late) return IRelayed.SignatureExpired.selector;
        if (way == Way.Forged) return IRelayed.InvalidSignature.selector;
        if (item.payout == address(0)) return IPointsSale.UnknownItem.selector;
        if (!item.active) return IPointsSale.ItemInactive.selector;
        if (placed[o.buyer][o.ref]) return IPointsSale.OrderAlreadyPlaced.selector;
        if (o.quantity == 0) return IPointsSale.BadQuantity.selector;
        if (item.maxPerOrder != 0 && o.quantity > item.maxPerOrder) return IPointsSale.BadQuantity.selector;
        if (o.quantity > item.stock - sold[o.itemId]) return IPointsSale.OutOfStock.selector;
        if (o.quantity * item.price > o.maxTotal) return IPointsSale.TotalAboveMax.selector;
        return refusalToPay(o.buyer, o.quantity * item.price);
    }

    function bookOrder(Order memory o) private {
        placed[o.buyer][o.ref] = true;
        sold[o.itemId] += o.quantity;
        uint256 total = o.quantity * items[o.itemId].price;
        if (items[o.itemId].burns) bookBurn(o.buyer, total);
        else book(o.buyer, PAYOUT, total);
    }

    function setItem(uint256 who, uint256 itemId, IPointsSale.Item memory item) external {
        itemId %= ITEMS;
        item.payout = PAYOUT;
        item.price %= 2 ether;
        item.stock %= 60;
        item.maxPerOrder %= 12;
        // Seldom closed, or nobody would ever buy.
        item.active = item.active || who % 4 != 0;
        address caller = who % 3 == 0 ? pick(who) : REGISTRAR;
        bytes4 reason = 0;
        if (caller != REGISTRAR) reason = NO_ROLE;
        else if (item.stock < sold[itemId]) reason = IPointsSale.StockBelowSold.selector;
        attempt(caller, abi.encodeCall(IPointsSale.setItem, (itemId, BRAND, item, 0)), reason);
        if (reason == 0) items[itemId] = item;
    }
}
