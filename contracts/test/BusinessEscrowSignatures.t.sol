// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBusinessEscrow} from "../src/IBusinessEscrow.sol";
import {BusinessEscrowSpec} from "./support/BusinessEscrowSpec.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";
import {SignedCallBehaviour, YesSayer} from "./support/SignedCallBehaviour.sol";

abstract contract BusinessEscrowSigned is BusinessEscrowSpec, SignedCallBehaviour {
    bytes32 internal constant OTHER = keccak256("another");

    function setUp() public override(BusinessEscrowSpec, RelayedSpec) {
        super.setUp();
        givenADeal();
        allow(ann, address(escrow), AMOUNT);
        lockFor(ann, AMOUNT, OTHER);
    }

    function verifier() internal view override returns (string memory, address) {
        return ("BusinessEscrow", address(escrow));
    }

    function hashOf(string memory kind, bytes32 dealId, uint256 deadline) internal pure returns (bytes32) {
        bytes32 typeHash = keccak256(abi.encodePacked(kind, "(bytes32 dealId,uint256 deadline)"));
        return keccak256(abi.encode(typeHash, dealId, deadline));
    }
}

/// @notice Releases that carry the user's signature.
contract BusinessEscrowReleaseSignatures is BusinessEscrowSigned {
    function signerKey() internal pure override returns (uint256) {
        return ANN_KEY;
    }

    function signedStruct(uint256 deadline) internal pure override returns (bytes32) {
        return hashOf("Release", DEAL, deadline);
    }

    function signedCall(uint256 deadline, bytes memory sig) internal pure override returns (bytes memory) {
        return abi.encodeCall(IBusinessEscrow.releaseWithSig, (DEAL, deadline, sig));
    }

    function replayReason() internal pure override returns (bytes memory) {
        return abi.encodeWithSelector(IBusinessEscrow.NotLocked.selector, DEAL, IBusinessEscrow.Status.Released);
    }

    function requireDone() internal view override {
        requireStatus(IBusinessEscrow.Status.Released);
        requireBalances(FUNDS - 2 * AMOUNT, FUNDS + AMOUNT, AMOUNT);
    }

    function test_a_signed_release_is_told_as_the_users() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.expectEmit(address(escrow));
        emit Released(DEAL, ann, bob, AMOUNT, ann);
        submit(block.timestamp, sig);
    }

    function test_a_signature_serves_its_own_deal_only() public {
        bytes memory sig = goodSignature(block.timestamp);
        expectInvalid();
        escrow.releaseWithSig(OTHER, block.timestamp, sig);
    }

    function test_a_refund_signed_by_the_user_moves_nothing() public {
        bytes memory sig = signFor(ANN_KEY, "BusinessEscrow", address(escrow), hashOf("Refund", DEAL, block.timestamp));
        expectInvalid();
        escrow.releaseWithSig(DEAL, block.timestamp, sig);
        expectInvalid();
        escrow.refundWithSig(DEAL, block.timestamp, sig);
    }

    function test_the_business_signs_no_release() public {
        bytes memory sig = signFor(BOB_KEY, "BusinessEscrow", address(escrow), signedStruct(block.timestamp));
        expectInvalid();
        submit(block.timestamp, sig);
    }
}

/// @notice Refunds that carry the business's signature.
contract BusinessEscrowRefundSignatures is BusinessEscrowSigned {
    function signerKey() internal pure override returns (uint256) {
        return BOB_KEY;
    }

    function signedStruct(uint256 deadline) internal pure override returns (bytes32) {
        return hashOf("Refund", DEAL, deadline);
    }

    function signedCall(uint256 deadline, bytes memory sig) internal pure override returns (bytes memory) {
        return abi.encodeCall(IBusinessEscrow.refundWithSig, (DEAL, deadline, sig));
    }

    function replayReason() internal pure override returns (bytes memory) {
        return abi.encodeWithSelector(IBusinessEscrow.NotLocked.selector, DEAL, IBusinessEscrow.Status.Refunded);
    }

    function requireDone() internal view override {
        requireStatus(IBusinessEscrow.Status.Refunded);
        requireBalances(FUNDS - AMOUNT, FUNDS, AMOUNT);
    }

    function test_a_signed_refund_is_told_as_the_businesss() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.expectEmit(address(escrow));
        emit Refunded(DEAL, ann, bob, AMOUNT, bob);
        submit(block.timestamp, sig);
    }

    function test_a_signature_serves_its_own_deal_only() public {
        bytes memory sig = goodSignature(block.timestamp);
        expectInvalid();
        escrow.refundWithSig(OTHER, block.timestamp, sig);
    }

    function test_a_release_signed_by_the_business_moves_nothing() public {
        bytes memory sig = signFor(BOB_KEY, "BusinessEscrow", address(escrow), hashOf("Release", DEAL, block.timestamp));
        expectInvalid();
        escrow.releaseWithSig(DEAL, block.timestamp, sig);
        expectInvalid();
        escrow.refundWithSig(DEAL, block.timestamp, sig);
    }

    function test_a_contract_is_not_asked_whether_it_signed() public {
        address wallet = address(new YesSayer());
        approveBusiness(wallet, true);
        allow(ann, address(escrow), AMOUNT);
        bytes32 dealId = keccak256("with a contract");
        vm.prank(RELAYER);
        escrow.lockFor(ann, wallet, AMOUNT, refundAfter, dealId);
        expectInvalid();
        escrow.refundWithSig(dealId, block.timestamp, new bytes(65));
        // It calls for itself.
        vm.prank(wallet);
        escrow.refund(dealId);
        vm.assertEq(statusOf(dealId), uint256(IBusinessEscrow.Status.Refunded));
    }
}
