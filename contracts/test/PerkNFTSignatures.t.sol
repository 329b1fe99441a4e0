// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";
import {SignedCallBehaviour, YesSayer} from "./support/SignedCallBehaviour.sol";

/// @notice Claims that carry the user's own signature.
contract PerkNFTSignatures is PerkNFTSpec, SignedCallBehaviour {
    struct Claim {
        address user;
        uint256 collectionId;
        uint256 maxPrice;
        uint256 expectedClaims;
        bytes32 ref;
        uint256 deadline;
    }

    function setUp() public override(PerkNFTSpec, RelayedSpec) {
        super.setUp();
        allow(ann, address(perks), FUNDS);
        allow(bob, address(perks), FUNDS);
    }

    function wish(uint256 deadline) private view returns (Claim memory) {
        return Claim(ann, SIGNED, PRICE, 0, REF, deadline);
    }

    function hashOf(Claim memory c) private pure returns (bytes32) {
        bytes32 typeHash = keccak256(
            "Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,bytes32 ref,uint256 deadline)"
        );
        return keccak256(abi.encode(typeHash, c));
    }

    function submitClaim(Claim memory c, bytes memory sig) private returns (uint256) {
        return perks.claimWithSig(c.user, c.collectionId, c.maxPrice, c.expectedClaims, c.ref, c.deadline, sig);
    }

    function verifier() internal view override returns (string memory, address) {
        return ("PerkNFT", address(perks));
    }

    function signerKey() internal pure override returns (uint256) {
        return ANN_KEY;
    }

    function signedStruct(uint256 deadline) internal view override returns (bytes32) {
        return hashOf(wish(deadline));
    }

    function signedCall(uint256 deadline, bytes memory sig) internal view override returns (bytes memory) {
        return abi.encodeCall(IPerkNFT.claimWithSig, (ann, SIGNED, PRICE, 0, REF, deadline, sig));
    }

    function replayReason() internal pure override returns (bytes memory) {
        return abi.encodeWithSelector(IPerkNFT.ClaimCountMismatch.selector, 0, 1);
    }

    function requireDone() internal view override {
        vm.assertEq(perks.balanceOf(ann), 1);
        vm.assertEq(perks.ownerOf(tokenOf(SIGNED, 1)), ann);
        vm.assertEq(ltz.balanceOf(ann), FUNDS - PRICE);
        vm.assertEq(ltz.balanceOf(PAYOUT), PRICE);
        vm.assertEq(perks.balanceOf(STRANGER), 0);
    }

    function test_a_signed_claim_is_told_with_its_reference() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.expectEmit(address(perks));
        emit Claimed(SIGNED, ann, tokenOf(SIGNED, 1), PRICE, 1, REF);
        vm.assertEq(submitClaim(wish(block.timestamp), sig), tokenOf(SIGNED, 1));
    }

    function test_a_signature_is_no_key_to_a_collection_without_need_of_it() public {
        Claim memory c = wish(block.timestamp);
        c.collectionId = PRICED;
        bytes memory sig = signFor(ANN_KEY, "PerkNFT", address(perks), hashOf(c));
        vm.assertEq(submitClaim(c, sig), tokenOf(PRICED, 1));
    }

    function test_a_signature_does_not_raise_a_limit() public {
        vm.prank(ann);
        perks.claim(SIGNED, PRICE, REF);
        vm.prank(ann);
        perks.claim(SIGNED, PRICE, REF);
        Claim memory c = wish(block.timestamp);
        c.expectedClaims = 2;
        bytes memory sig = signFor(ANN_KEY, "PerkNFT", address(perks), hashOf(c));
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.ClaimLimitReached.selector, SIGNED, 2, 2));
        submitClaim(c, sig);
    }

    function test_a_signature_dies_when_the_user_claims_otherwise() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.prank(ann);
        perks.claim(SIGNED, PRICE, REF);
        vm.expectRevert(replayReason());
        submitClaim(wish(block.timestamp), sig);
    }

    function test_the_price_signed_is_the_most_that_is_paid() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.prank(BRAND);
        perks.updateCollection(SIGNED, PRICE + 1, 100, 2, true);
        vm.expectRevert(abi.encodeWithSelector(IPerkNFT.PriceAboveMax.selector, PRICE + 1, PRICE));
        submitClaim(wish(block.timestamp), sig);
    }

    function test_a_contract_is_not_asked_whether_it_signed() public {
        Claim memory c = wish(block.timestamp);
        c.user = address(new YesSayer());
        c.collectionId = FREE;
        bytes memory sig = signFor(ANN_KEY, "PerkNFT", address(perks), hashOf(c));
        expectInvalid();
        submitClaim(c, sig);
    }

    function test_nobody_signs_for_the_zero_address() public {
        Claim memory c = wish(block.timestamp);
        c.user = address(0);
        expectInvalid();
        submitClaim(c, new bytes(65));
    }

    function testFuzz_changing_any_signed_field_is_refused(uint256 field, uint64 change) public {
        vm.assume(change != 0);
        Claim memory c = wish(block.timestamp);
        bytes memory sig = goodSignature(block.timestamp);
        field %= 6;
        if (field == 0) c.user = bob;
        if (field == 1) c.collectionId = 1 + change % 2;
        if (field == 2) c.maxPrice ^= change;
        if (field == 3) c.expectedClaims ^= change;
        if (field == 4) c.ref ^= bytes32(uint256(change));
        if (field == 5) c.deadline += change;
        expectInvalid();
        submitClaim(c, sig);
    }

    function testFuzz_any_wish_can_be_signed(uint256 key, uint256 maxPrice, bytes32 ref, uint64 patience) public {
        key = between(key, 1, type(uint128).max);
        Claim memory c = Claim(vm.addr(key), FREE, maxPrice, 0, ref, block.timestamp + patience);
        bytes memory sig = signFor(key, "PerkNFT", address(perks), hashOf(c));
        submitClaim(c, sig);
        vm.assertEq(perks.ownerOf(tokenOf(FREE, 1)), c.user);
    }
}
