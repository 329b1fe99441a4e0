// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC721Receiver} from "@openzeppelin/contracts/token/ERC721/IERC721Receiver.sol";

import {BusinessEscrow} from "../src/BusinessEscrow.sol";
import {IBusinessEscrow} from "../src/IBusinessEscrow.sol";
import {IPerkNFT} from "../src/IPerkNFT.sol";
import {IPointsSale} from "../src/IPointsSale.sol";
import {LTZ} from "../src/LTZ.sol";
import {PerkNFT} from "../src/PerkNFT.sol";
import {PointsSale} from "../src/PointsSale.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";

/// @notice An LTZ as ours is not: while it moves, it calls back. It records how the call ended.
contract CallingToken {
    address private target;
    bytes private data;
    bool public called;
    bool public succeeded;
    bytes public answer;

    function plan(address target_, bytes calldata data_) external {
        (target, data, called) = (target_, data_, false);
    }

    function transfer(address, uint256) external returns (bool) {
        return callBack();
    }

    function transferFrom(address, address, uint256) external returns (bool) {
        return callBack();
    }

    function burnFrom(address, uint256) external {
        callBack();
    }

    function callBack() private returns (bool) {
        // Once, or it would call for ever.
        if (called || target == address(0)) return true;
        called = true;
        (succeeded, answer) = target.call(data);
        return true;
    }
}

/// @notice Holds a role, and gives a token away from within its arrival.
contract Juggler is IERC721Receiver {
    PerkNFT private immutable perks;
    address private immutable friend;

    constructor(PerkNFT perks_, address friend_) {
        (perks, friend) = (perks_, friend_);
    }

    function onERC721Received(address, address, uint256 tokenId, bytes calldata) external returns (bytes4) {
        perks.transferFrom(address(this), friend, tokenId);
        perks.claim(1, 0, "from within");
        return IERC721Receiver.onERC721Received.selector;
    }
}

/// @notice Whoever calls back in the middle finds everything written already. There is no lock: LTZ calls nobody, and even
/// a token that did would gain nothing.
contract Reentrancy is PerkNFTSpec {
    CallingToken private token;
    address private constant HOLDER = address(0x401D);
    address private constant ARBITER = address(0xA4B);

    function setUp() public override {
        super.setUp();
        token = new CallingToken();
    }

    function requireRefused(bytes memory reason) private view {
        vm.assertTrue(token.called());
        vm.assertFalse(token.succeeded());
        vm.assertEq(token.answer(), reason, "answer");
    }

    function test_a_claim_within_a_claim_is_counted() public {
        PerkNFT hostile = new PerkNFT(LTZ(address(token)), ADMIN, ADMIN_DELAY);
        grantOn(address(hostile), REGISTRAR_ROLE, REGISTRAR);
        grantOn(address(hostile), RELAYER_ROLE, address(token));
        grantOn(address(hostile), RELAYER_ROLE, RELAYER);
        IPerkNFT.CollectionParams memory p = pricedPerk();
        p.maxSupply = 1;
        vm.prank(REGISTRAR);
        hostile.createCollection(p, "");
        token.plan(address(hostile), abi.encodeCall(IPerkNFT.claimFor, (ann, 1, PRICE, 0, REF)));
        vm.prank(RELAYER);
        hostile.claimFor(ann, 1, PRICE, 0, REF);
        requireRefused(abi.encodeWithSelector(IPerkNFT.ClaimCountMismatch.selector, 0, 1));
        vm.assertEq(hostile.balanceOf(ann), 1);
    }

    function test_a_sale_within_a_sale_finds_the_stock_taken() public {
        PointsSale hostile = new PointsSale(LTZ(address(token)), ADMIN, ADMIN_DELAY);
        grantOn(address(hostile), REGISTRAR_ROLE, REGISTRAR);
        grantOn(address(hostile), RELAYER_ROLE, address(token));
        grantOn(address(hostile), RELAYER_ROLE, RELAYER);
        for (uint256 burns = 0; burns < 2; ++burns) {
            vm.prank(REGISTRAR);
            hostile.setItem(burns, BRAND, IPointsSale.Item(PAYOUT, PRICE, 1, 0, 0, true, burns == 1), "");
            token.plan(address(hostile), abi.encodeCall(IPointsSale.buyFor, (bob, burns, 1, PRICE, REF)));
            vm.prank(RELAYER);
            hostile.buyFor(ann, burns, 1, PRICE, bytes32(burns));
            requireRefused(abi.encodeWithSelector(IPointsSale.OutOfStock.selector, burns, 0));
        }
    }

    function hostileEscrow() private returns (BusinessEscrow hostile) {
        hostile = new BusinessEscrow(LTZ(address(token)), ADMIN, ADMIN_DELAY);
        grantOn(address(hostile), REGISTRAR_ROLE, REGISTRAR);
        grantOn(address(hostile), RELAYER_ROLE, address(token));
        grantOn(address(hostile), keccak256("SETTLER_ROLE"), address(token));
        grantOn(address(hostile), keccak256("ARBITER_ROLE"), ARBITER);
        vm.prank(REGISTRAR);
        hostile.setBusiness(bob, true);
    }

    function lockOn(BusinessEscrow hostile, bytes32 dealId) private {
        vm.prank(ann);
        hostile.lock(bob, 1 ether, uint40(block.timestamp + 1 days), dealId);
    }

    function test_a_deal_within_its_own_beginning_exists() public {
        BusinessEscrow hostile = hostileEscrow();
        uint40 refundAfter = uint40(block.timestamp + 1 days);
        token.plan(
            address(hostile), abi.encodeCall(IBusinessEscrow.lockFor, (bob, bob, 9 ether, refundAfter, bytes32(0)))
        );
        lockOn(hostile, 0);
        requireRefused(abi.encodeWithSelector(IBusinessEscrow.DealExists.selector, 0));
        vm.assertEq(hostile.deal(0).user, ann);
    }

    function test_a_deal_that_pays_has_ended() public {
        BusinessEscrow hostile = hostileEscrow();
        address[3] memory callers = [ann, bob, ARBITER];
        bytes4[3] memory ends =
            [IBusinessEscrow.release.selector, IBusinessEscrow.refund.selector, IBusinessEscrow.split.selector];
        IBusinessEscrow.Status[3] memory statuses =
            [IBusinessEscrow.Status.Released, IBusinessEscrow.Status.Refunded, IBusinessEscrow.Status.Split];
        for (uint256 i = 0; i < ends.length; ++i) {
            bytes32 dealId = bytes32(i);
            token.plan(address(0), "");
            lockOn(hostile, dealId);
            token.plan(address(hostile), abi.encodeCall(IBusinessEscrow.refund, (dealId)));
            // Only a split reads the second word, half the amount.
            send(callers[i], address(hostile), abi.encodeWithSelector(ends[i], dealId, 0.5 ether));
            requireRefused(abi.encodeWithSelector(IBusinessEscrow.NotLocked.selector, dealId, statuses[i]));
        }
    }

    function test_a_claim_runs_no_code_of_its_receiver() public {
        Juggler juggler = new Juggler(perks, HOLDER);
        vm.assertEq(claimFor(address(juggler), FREE, 0), tokenOf(FREE, 1));
        vm.assertEq(perks.ownerOf(tokenOf(FREE, 1)), address(juggler));
    }

    function test_a_receiver_that_claims_and_gives_away_within_a_transfer_gains_nothing() public {
        Juggler juggler = new Juggler(perks, HOLDER);
        uint256 token_ = claimFor(ann, FREE, 0);
        vm.prank(ann);
        perks.safeTransferFrom(ann, address(juggler), token_);
        vm.assertEq(perks.ownerOf(token_), HOLDER);
        vm.assertEq(perks.balanceOf(address(juggler)), 1);
        vm.assertEq(perks.claimsOf(address(juggler), FREE), 1);
        requireCharges(token_, 3, 3);
        // One claim is all it has, within or without.
        token_ = claimFor(bob, FREE, 0);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.ClaimLimitReached.selector, FREE, 1, 1));
        vm.prank(bob);
        perks.safeTransferFrom(bob, address(juggler), token_);
        vm.assertEq(perks.ownerOf(token_), bob);
    }
}
