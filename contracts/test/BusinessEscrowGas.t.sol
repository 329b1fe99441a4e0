// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BusinessEscrowSpec} from "./support/BusinessEscrowSpec.sol";
import {GasMeter} from "./support/GasMeter.sol";
import {RelayedSpec} from "./support/RelayedSpec.sol";

/// @notice See {GasMeter}.
/// forge-config: default.isolate = true
contract BusinessEscrowGas is BusinessEscrowSpec, GasMeter {
    function setUp() public override(BusinessEscrowSpec, RelayedSpec) {
        super.setUp();
        // The steady state of a running system: there are other deals. Allowances are exact, as permits are.
        allow(ann, address(escrow), AMOUNT);
        lockFor(ann, AMOUNT, keccak256("another"));
        allow(ann, address(escrow), AMOUNT);
    }

    function group() internal pure override returns (string memory) {
        return "BusinessEscrow";
    }

    function test_a_lock() public {
        lockFor(ann, AMOUNT, DEAL);
        hold("lockFor, later", 93_000);
    }

    function test_a_release() public {
        lockFor(ann, AMOUNT, DEAL);
        vm.prank(ann);
        escrow.release(DEAL);
        hold("release", 50_000);
    }
}
