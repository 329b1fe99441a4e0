// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBusinessEscrow} from "../src/IBusinessEscrow.sol";
import {BusinessEscrowHandler} from "./support/BusinessEscrowHandler.sol";
import {BusinessEscrowSpec} from "./support/BusinessEscrowSpec.sol";

/// @notice What holds whatever anybody does. {BusinessEscrowHandler} does it.
contract BusinessEscrowInvariants is BusinessEscrowSpec {
    BusinessEscrowHandler private handler;

    function setUp() public override {
        super.setUp();
        // It reads who is approved when it is made.
        BusinessEscrowHandler scout = new BusinessEscrowHandler(escrow);
        for (uint256 i = 0; i < scout.userCount(); ++i) {
            approveBusiness(scout.users(i), true);
            mint(scout.users(i), 100 ether, refOf(uint64(100 + i)));
            allow(scout.users(i), address(escrow), 80 ether);
        }
        handler = new BusinessEscrowHandler(escrow);
        handler.openBooks();
    }

    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_it_holds_what_its_open_deals_are_worth_and_a_deal_ends_once() public view {
        uint256 open = 0;
        for (uint256 i = 0; i < handler.DEALS(); ++i) {
            IBusinessEscrow.Deal memory held = escrow.deal(handler.idOf(i));
            BusinessEscrowHandler.Entry memory entry = handler.entry(i);
            vm.assertEq(uint256(held.status), uint256(entry.status), "status");
            vm.assertEq(held.amount, entry.amount, "amount");
            vm.assertEq(held.refundAfter, entry.refundAfter, "time");
            if (held.status == IBusinessEscrow.Status.Locked) open += held.amount;
        }
        vm.assertEq(ltz.balanceOf(address(escrow)), open + handler.donated(), "held");
    }

    function invariant_it_moves_only_what_was_asked() public view {
        vm.assertEq(ltz.balanceOf(address(escrow)), handler.holds(address(escrow)), "the escrow's");
        for (uint256 i = 0; i < handler.userCount(); ++i) {
            vm.assertEq(ltz.balanceOf(handler.users(i)), handler.holds(handler.users(i)), "a user's");
        }
    }
}
