// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPointsSale} from "../src/IPointsSale.sol";
import {PointsSaleSpec} from "./support/PointsSaleSpec.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";
import {SignedCallBehaviour, YesSayer} from "./support/SignedCallBehaviour.sol";

/// @notice Orders that carry the buyer's own signature.
contract PointsSaleSignatures is PointsSaleSpec, SignedCallBehaviour {
    struct Buy {
        address buyer;
        uint256 itemId;
        uint256 quantity;
        uint256 maxTotal;
        bytes32 ref;
        uint256 deadline;
    }

    function setUp() public override(PointsSaleSpec, RelayedSpec) {
        super.setUp();
        allow(ann, address(sale), FUNDS);
        allow(bob, address(sale), FUNDS);
    }

    function wish(uint256 deadline) private view returns (Buy memory) {
        return Buy(ann, MUG, 2, 2 * PRICE, REF, deadline);
    }

    function hashOf(Buy memory b) private pure returns (bytes32) {
        bytes32 typeHash = keccak256(
            "Buy(address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,uint256 deadline)"
        );
        return keccak256(abi.encode(typeHash, b));
    }

    function submitOrder(Buy memory b, bytes memory sig) private returns (uint256) {
        return sale.buyWithSig(b.buyer, b.itemId, b.quantity, b.maxTotal, b.ref, b.deadline, sig);
    }

    function verifier() internal view override returns (string memory, address) {
        return ("PointsSale", address(sale));
    }

    function signerKey() internal pure override returns (uint256) {
        return ANN_KEY;
    }

    function signedStruct(uint256 deadline) internal view override returns (bytes32) {
        return hashOf(wish(deadline));
    }

    function signedCall(uint256 deadline, bytes memory sig) internal view override returns (bytes memory) {
        return abi.encodeCall(IPointsSale.buyWithSig, (ann, MUG, 2, 2 * PRICE, REF, deadline, sig));
    }

    function replayReason() internal pure override returns (bytes memory) {
        return abi.encodeWithSelector(IPointsSale.OrderAlreadyPlaced.selector, REF);
    }

    function requireDone() internal view override {
        vm.assertEq(itemOf(MUG).sold, 2);
        vm.assertTrue(sale.isOrderPlaced(ann, REF));
        vm.assertEq(ltz.balanceOf(ann), FUNDS - 2 * PRICE);
        vm.assertEq(ltz.balanceOf(PAYOUT), 2 * PRICE);
    }

    function test_a_signed_order_is_told_with_its_reference() public {
        bytes memory sig = goodSignature(block.timestamp);
        vm.expectEmit(address(sale));
        emit Purchased(MUG, ann, REF, 2, 2 * PRICE);
        vm.assertEq(submitOrder(wish(block.timestamp), sig), 2 * PRICE);
    }

    function test_a_signature_dies_when_the_relay_places_the_order() public {
        bytes memory sig = goodSignature(block.timestamp);
        buy(ann, MUG, 2, REF);
        vm.expectRevert(replayReason());
        submitOrder(wish(block.timestamp), sig);
    }

    function test_a_contract_is_not_asked_whether_it_signed() public {
        Buy memory b = wish(block.timestamp);
        b.buyer = address(new YesSayer());
        bytes memory sig = signFor(ANN_KEY, "PointsSale", address(sale), hashOf(b));
        expectInvalid();
        submitOrder(b, sig);
    }

    function testFuzz_changing_any_signed_field_is_refused(uint256 field, uint64 change) public {
        vm.assume(change != 0);
        Buy memory b = wish(block.timestamp);
        bytes memory sig = goodSignature(block.timestamp);
        field %= 6;
        if (field == 0) b.buyer = bob;
        if (field == 1) b.itemId ^= change;
        if (field == 2) b.quantity ^= change;
        if (field == 3) b.maxTotal ^= change;
        if (field == 4) b.ref ^= bytes32(uint256(change));
        if (field == 5) b.deadline += change;
        expectInvalid();
        submitOrder(b, sig);
    }

    function testFuzz_any_order_can_be_signed(uint256 key, uint256 quantity, bytes32 ref, uint64 patience) public {
        key = between(key, 1, type(uint128).max);
        quantity = between(quantity, 1, 10);
        Buy memory b = Buy(vm.addr(key), MUG, quantity, quantity * PRICE, ref, block.timestamp + patience);
        mint(b.buyer, 10 * PRICE, refOf(9));
        allow(b.buyer, address(sale), 10 * PRICE);
        bytes memory sig = signFor(key, "PointsSale", address(sale), hashOf(b));
        vm.assertEq(submitOrder(b, sig), quantity * PRICE);
    }
}
