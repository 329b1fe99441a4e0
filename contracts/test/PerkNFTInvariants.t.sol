// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {PerkNFTHandler} from "./support/PerkNFTHandler.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";

/// @notice What holds whatever anybody does. {PerkNFTHandler} does it.
contract PerkNFTInvariants is PerkNFTSpec {
    PerkNFTHandler private handler;

    function setUp() public override {
        super.setUp();
        IPerkNFT.CollectionParams memory p = freePerk();
        (p.maxPerUser, p.maxSupply) = (0, 30);
        create(p, "");
        handler = new PerkNFTHandler(perks);
        for (uint256 i = 0; i < handler.userCount(); ++i) {
            mint(handler.users(i), 150 ether, refOf(uint64(100 + i)));
            allow(handler.users(i), address(perks), 100 ether);
        }
        handler.openBooks();
    }

    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function invariant_nobody_claims_above_the_limit_and_claims_sum_to_the_tokens() public view {
        for (uint256 id = 1; id <= handler.collections(); ++id) {
            uint256 sum = 0;
            for (uint256 i = 0; i < handler.userCount(); ++i) {
                uint256 claims = perks.claimsOf(handler.users(i), id);
                vm.assertEq(claims, handler.claims(handler.users(i), id), "claims");
                vm.assertLe(claims, handler.highestLimit(id), "claim limit");
                sum += claims;
            }
            IPerkNFT.CollectionInfo memory info = perks.collection(id);
            vm.assertEq(info.minted, handler.minted(id), "minted");
            vm.assertEq(sum, info.minted, "sum of claims");
            if (info.params.maxSupply != 0) vm.assertLe(info.minted, info.params.maxSupply, "supply");
        }
    }

    function invariant_a_token_keeps_its_charges_less_those_redeemed_and_its_holder() public view {
        for (uint256 i = 0; i < handler.tokenCount(); ++i) {
            uint256 token = handler.tokens(i);
            (uint256 remaining, uint256 total) = perks.chargesOf(token);
            vm.assertEq(remaining + handler.redeemed(token), total, "charges");
            vm.assertEq(total, (token >> 32) == FREE || (token >> 32) == 4 ? 3 : 10, "total");
            vm.assertEq(perks.ownerOf(token), handler.owner(token));
        }
    }

    function invariant_it_holds_no_ltz_and_moves_only_what_was_asked() public view {
        vm.assertEq(ltz.balanceOf(address(perks)), 0, "held");
        vm.assertEq(ltz.balanceOf(PAYOUT), handler.holds(PAYOUT), "the payout's");
        for (uint256 i = 0; i < handler.userCount(); ++i) {
            vm.assertEq(ltz.balanceOf(handler.users(i)), handler.holds(handler.users(i)), "a user's");
        }
    }
}
