// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IPerkNFT} from "../src/IPerkNFT.sol";
import {IRelayed} from "../src/IRelayed.sol";
import {GasMeter} from "./support/GasMeter.sol";
import {PerkNFTSpec} from "./support/PerkNFTSpec.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice See {GasMeter}.
/// forge-config: default.isolate = true
contract PerkNFTGas is PerkNFTSpec, GasMeter {
    uint256 private constant OTHER = 4;

    function setUp() public override(PerkNFTSpec, RelayedSpec) {
        super.setUp();
        // The steady state of a running system: the payout has been paid, the collections have tokens, and Ann has given
        // permits before. Allowances are exact, as permits are, so that a payment clears them.
        Permit memory given = Permit(ann, BRAND, 0, 0, block.timestamp);
        Signature memory signed = signPermit(ANN_KEY, ltz, given);
        ltz.permit(ann, BRAND, 0, given.deadline, signed.v, signed.r, signed.s);
        create(pricedPerk(), "https://perks.example/lunch.json");
        for (uint256 id = FREE; id <= OTHER; ++id) {
            if (id == SIGNED) continue;
            allow(bob, address(perks), PRICE);
            claimFor(bob, id, 0);
        }
    }

    function group() internal pure override returns (string memory) {
        return "PerkNFT";
    }

    function afterAClaim() private {
        allow(ann, address(perks), PRICE);
        claimFor(ann, OTHER, 0);
    }

    function test_a_first_claim() public {
        allow(ann, address(perks), PRICE);
        claimFor(ann, PRICED, 0);
        hold("claimFor, a user's first", 126_000);
    }

    function test_a_later_claim() public {
        afterAClaim();
        allow(ann, address(perks), PRICE);
        claimFor(ann, PRICED, 0);
        hold("claimFor, later", 92_000);
    }

    function test_a_claim_with_its_permit() public {
        afterAClaim();
        Permit memory given = Permit(ann, address(perks), PRICE, 1, block.timestamp);
        Signature memory signed = signPermit(ANN_KEY, ltz, given);
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(IRelayed.permitLTZ, (ann, PRICE, given.deadline, signed.v, signed.r, signed.s));
        calls[1] = abi.encodeCall(IPerkNFT.claimFor, (ann, PRICED, PRICE, 0, REF));
        vm.prank(RELAYER);
        perks.multicall(calls);
        hold("multicall[permitLTZ, claimFor]", 112_000);
    }

    function test_a_signed_claim() public {
        afterAClaim();
        allow(ann, address(perks), PRICE);
        bytes32 typeHash = keccak256(
            "Claim(address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,bytes32 ref,uint256 deadline)"
        );
        bytes32 structHash = keccak256(abi.encode(typeHash, ann, PRICED, PRICE, 0, REF, block.timestamp));
        bytes memory sig = signFor(ANN_KEY, "PerkNFT", address(perks), structHash);
        vm.prank(STRANGER);
        perks.claimWithSig(ann, PRICED, PRICE, 0, REF, block.timestamp, sig);
        hold("claimWithSig, later", 98_000);
    }

    function test_a_first_redemption() public {
        redeem(tokenOf(PRICED, 1), bob, 1, 10);
        hold("redeemCharge, first in its word", 56_000);
    }

    function test_a_later_redemption() public {
        redeem(tokenOf(PRICED, 1), bob, 1, 10);
        redeem(tokenOf(PRICED, 1), bob, 1, 9);
        hold("redeemCharge, later", 38_000);
    }
}
