// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";

import {LTZSpec} from "./support/LTZSpec.sol";

/// @notice What a signature moves: exactly what was signed, once, in time.
contract LTZSignatures is LTZSpec {
    event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce);
    event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce);

    bytes32 private constant NONCE = keccak256("a random nonce");

    function setUp() public override {
        super.setUp();
        mint(ann, 10 ether, refOf(1));
    }

    function payment() private view returns (Payment memory) {
        return Payment(ann, bob, 4 ether, block.timestamp - 1, block.timestamp + 1, NONCE);
    }

    function expectBadSignature() private {
        vm.expectRevert(abi.encodeWithSignature("ERC3009InvalidSignature()"));
    }

    function expectUsed() private {
        vm.expectRevert(abi.encodeWithSignature("ERC3009UsedAuthorization(address,bytes32)", ann, NONCE));
    }

    function test_the_domain_is_the_published_one() public view {
        vm.assertEq(ltz.DOMAIN_SEPARATOR(), domainOf(ltz));
    }

    function test_a_signed_transfer_moves_what_was_signed() public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        vm.expectEmit(address(ltz));
        emit AuthorizationUsed(ann, NONCE);
        vm.expectEmit(address(ltz));
        emit Transfer(ann, bob, 4 ether);
        vm.prank(STRANGER);
        pay(ltz, paid, signed);
        vm.assertEq(ltz.balanceOf(bob), 4 ether);
        vm.assertEq(ltz.balanceOf(ann), 6 ether);
        vm.assertTrue(ltz.authorizationState(ann, NONCE));
    }

    function test_a_signed_transfer_moves_once() public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        pay(ltz, paid, signed);
        expectUsed();
        pay(ltz, paid, signed);
    }

    function test_a_nonce_belongs_to_one_account() public {
        mint(bob, 1 ether, refOf(2));
        Payment memory paid = payment();
        pay(ltz, paid, signPayment(ANN_KEY, ltz, TRANSFER, paid));
        vm.assertFalse(ltz.authorizationState(bob, NONCE));
    }

    function test_a_signed_transfer_works_only_strictly_inside_its_window() public {
        Payment memory early = payment();
        early.validAfter = block.timestamp;
        Payment memory late = payment();
        late.validBefore = block.timestamp;
        Payment[2] memory outside = [early, late];
        for (uint256 i = 0; i < outside.length; ++i) {
            Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, outside[i]);
            vm.expectRevert(
                abi.encodeWithSignature(
                    "ERC3009InvalidAuthorizationTime(uint256,uint256)", outside[i].validAfter, outside[i].validBefore
                )
            );
            pay(ltz, outside[i], signed);
        }
    }

    function test_a_transfer_signed_by_another_is_refused() public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(BOB_KEY, ltz, TRANSFER, paid);
        expectBadSignature();
        pay(ltz, paid, signed);
    }

    function test_a_signature_for_another_chain_is_refused() public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        vm.chainId(block.chainid + 1);
        expectBadSignature();
        pay(ltz, paid, signed);
    }

    function test_a_malleable_signature_is_refused() public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        signed.s = bytes32(order - uint256(signed.s));
        signed.v = signed.v == 27 ? 28 : 27;
        vm.expectRevert(abi.encodeWithSignature("ECDSAInvalidSignatureS(bytes32)", signed.s));
        pay(ltz, paid, signed);
    }

    function test_a_signed_transfer_of_more_than_the_balance_is_refused() public {
        Payment memory paid = payment();
        paid.value = 11 ether;
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        vm.expectRevert(
            abi.encodeWithSignature(
                "ERC20InsufficientBalance(address,uint256,uint256)", ann, uint256(10 ether), uint256(11 ether)
            )
        );
        pay(ltz, paid, signed);
    }

    function testFuzz_changing_any_signed_field_is_refused(uint256 field, uint256 change) public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        change = between(change, 1, type(uint64).max);
        field = field % 6;
        if (field == 0) paid.from = address(uint160(paid.from) ^ uint160(change));
        if (field == 1) paid.to = address(uint160(paid.to) ^ uint160(change));
        if (field == 2) paid.value ^= change;
        if (field == 3) paid.validAfter ^= change;
        if (field == 4) paid.validBefore ^= change;
        if (field == 5) paid.nonce ^= bytes32(change);
        expectBadSignature();
        pay(ltz, paid, signed);
    }

    function testFuzz_any_amount_and_nonce_can_be_signed(uint256 amountSeed, bytes32 nonce, uint256 key) public {
        key = between(key, 1, type(uint128).max);
        address payer = vm.addr(key);
        uint256 amount = between(amountSeed, 0, 1000 ether);
        mint(payer, 1000 ether, refOf(2));
        Payment memory paid = Payment(payer, bob, amount, 0, type(uint256).max, nonce);
        uint256 before = ltz.balanceOf(bob);
        pay(ltz, paid, signPayment(key, ltz, TRANSFER, paid));
        if (payer != bob) vm.assertEq(ltz.balanceOf(bob) - before, amount);
    }

    function test_a_payment_to_be_received_moves_for_its_payee_only() public {
        Payment memory paid = payment();
        Signature memory signed = signPayment(ANN_KEY, ltz, RECEIVE, paid);
        vm.expectRevert(abi.encodeWithSignature("ERC20InvalidReceiver(address)", bob));
        vm.prank(STRANGER);
        receivePayment(ltz, paid, signed);
        vm.prank(bob);
        receivePayment(ltz, paid, signed);
        vm.assertEq(ltz.balanceOf(bob), 4 ether);
        expectUsed();
        vm.prank(bob);
        receivePayment(ltz, paid, signed);
    }

    function test_a_signature_to_receive_is_none_to_transfer() public {
        Payment memory paid = payment();
        Signature memory toReceive = signPayment(ANN_KEY, ltz, RECEIVE, paid);
        expectBadSignature();
        pay(ltz, paid, toReceive);
        Signature memory toTransfer = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        expectBadSignature();
        vm.prank(bob);
        receivePayment(ltz, paid, toTransfer);
    }

    function test_a_cancelled_authorization_moves_nothing() public {
        Signature memory signed = signCancel(ANN_KEY, ltz, ann, NONCE);
        vm.expectEmit(address(ltz));
        emit AuthorizationCanceled(ann, NONCE);
        ltz.cancelAuthorization(ann, NONCE, signed.v, signed.r, signed.s);
        Payment memory paid = payment();
        Signature memory paidSignature = signPayment(ANN_KEY, ltz, TRANSFER, paid);
        expectUsed();
        pay(ltz, paid, paidSignature);
    }

    function test_only_the_signer_cancels() public {
        Signature memory signed = signCancel(BOB_KEY, ltz, ann, NONCE);
        expectBadSignature();
        ltz.cancelAuthorization(ann, NONCE, signed.v, signed.r, signed.s);
    }

    function permission() private view returns (Permit memory) {
        return Permit(ann, STRANGER, 4 ether, 0, block.timestamp);
    }

    function permit(Permit memory given, Signature memory signed) private {
        ltz.permit(given.owner, given.spender, given.value, given.deadline, signed.v, signed.r, signed.s);
    }

    function test_a_permit_allows_what_was_signed_once() public {
        Signature memory signed = signPermit(ANN_KEY, ltz, permission());
        permit(permission(), signed);
        vm.assertEq(ltz.allowance(ann, STRANGER), 4 ether);
        vm.assertEq(ltz.nonces(ann), 1);
        // Under the next nonce the same signature is somebody else's.
        vm.expectPartialRevert(bytes4(keccak256("ERC2612InvalidSigner(address,address)")));
        permit(permission(), signed);
    }

    function test_a_late_permit_is_refused() public {
        Permit memory late = permission();
        late.deadline = block.timestamp - 1;
        Signature memory signed = signPermit(ANN_KEY, ltz, late);
        vm.expectRevert(abi.encodeWithSignature("ERC2612ExpiredSignature(uint256)", late.deadline));
        permit(late, signed);
    }

    function test_a_permit_signed_by_another_is_refused() public {
        Signature memory signed = signPermit(BOB_KEY, ltz, permission());
        vm.expectRevert(abi.encodeWithSignature("ERC2612InvalidSigner(address,address)", bob, ann));
        permit(permission(), signed);
    }

    function test_permit_and_transfer_travel_in_one_call_and_leave_no_allowance() public {
        Permit memory given = permission();
        Signature memory signed = signPermit(ANN_KEY, ltz, given);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(
            IERC20Permit.permit, (given.owner, given.spender, given.value, given.deadline, signed.v, signed.r, signed.s)
        );
        calls[1] = abi.encodeCall(IERC20.transferFrom, (ann, bob, 4 ether));
        vm.prank(STRANGER);
        ltz.multicall(calls);
        vm.assertEq(ltz.balanceOf(bob), 4 ether);
        vm.assertEq(ltz.allowance(ann, STRANGER), 0);
    }

    function test_a_holder_needs_nobody_to_transfer() public {
        vm.prank(GUARDIAN);
        ltz.revokeRole(minterRole, MINTER);
        vm.prank(ann);
        vm.assertTrue(ltz.transfer(bob, 10 ether));
        vm.assertEq(ltz.balanceOf(bob), 10 ether);
    }
}
