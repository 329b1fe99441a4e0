// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {GasMeter} from "./support/GasMeter.sol";
import {PointsSaleSpec} from "./support/PointsSaleSpec.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice See {GasMeter}.
/// forge-config: default.isolate = true
contract PointsSaleGas is PointsSaleSpec, GasMeter {
    bytes32 private constant NEXT_REF = REF ^ bytes32(uint256(1));

    function setUp() public override(PointsSaleSpec, RelayedSpec) {
        super.setUp();
        // The steady state of a running system: the payout has been paid. Allowances are exact, as permits are.
        allow(bob, address(sale), PRICE);
        buy(bob, MUG, 1, REF);
    }

    function group() internal pure override returns (string memory) {
        return "PointsSale";
    }

    function test_a_first_order() public {
        allow(ann, address(sale), PRICE);
        buy(ann, MUG, 1, REF);
        hold("buyFor, first in its word", 77_000);
    }

    function test_a_later_order() public {
        allow(bob, address(sale), PRICE);
        buy(bob, MUG, 1, NEXT_REF);
        hold("buyFor, later", 60_000);
    }
}
