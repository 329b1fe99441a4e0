// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @notice Fails on purpose. scripts/test.mjs runs it to see forge say so: npm carries a forge that always exits with 0.
contract Fails {
    function test_that_fails_on_purpose() public pure {
        revert("on purpose");
    }
}
