// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../src/IPointsSale.sol";
import {PointsSaleHandler} from "./support/PointsSaleHandler.sol";
import {PointsSaleSpec} from "./support/PointsSaleSpec.sol";

/// @notice What holds whatever anybody does. {PointsSaleHandler} does it.
contract PointsSaleInvariants is PointsSaleSpec {
    PointsSaleHandler private handler;
    uint256 private supply;

    function setUp() public override {
        super.setUp();
        handler = new PointsSaleHandler(sale);
        // Its items are its own; of one it has heard nothing yet.
        for (uint256 i = 1; i < handler.ITEMS(); ++i) {
            handler.setItem(1, i, mug());
        }
        for (uint256 i = 0; i < handler.userCount(); ++i) {
            mint(handler.users(i), 80 ether, refOf(uint64(100 + i)));
            allow(handler.users(i), address(sale), 60 ether);
        }
        handler.openBooks();
        supply = ltz.totalSupply();
    }

    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_no_more_are_sold_than_there_are_and_each_order_counts_once() public view {
        for (uint256 i = 1; i < handler.ITEMS(); ++i) {
            IPointsSale.Item memory item = itemOf(i);
            vm.assertLe(item.sold, item.stock, "stock");
            vm.assertEq(item.sold, handler.sold(i), "sold");
        }
    }

    function invariant_it_holds_no_ltz_and_moves_only_what_was_asked() public view {
        vm.assertEq(ltz.balanceOf(address(sale)), 0, "held");
        vm.assertEq(ltz.balanceOf(PAYOUT), handler.holds(PAYOUT), "the payout's");
        vm.assertEq(ltz.totalSupply(), supply - handler.burned(), "supply");
        for (uint256 i = 0; i < handler.userCount(); ++i) {
            vm.assertEq(ltz.balanceOf(handler.users(i)), handler.holds(handler.users(i)), "a user's");
        }
    }
}
