// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {RelayedSpec} from "./RelayedSpec.sol";

/// @notice What transactions cost, intrinsic gas and calldata included, if the suite that inherits this is isolated.
/// Ceilings are held here; the exact figures lie in snapshots/.
abstract contract GasMeter is RelayedSpec {
    function group() internal pure virtual returns (string memory);

    /// @dev Of the last call.
    function hold(string memory what, uint256 ceiling) internal {
        vm.assertLe(vm.snapshotGasLastCall(group(), what), ceiling, what);
    }
}
