// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Authorizations} from "./Authorizations.sol";

/// @notice Signs EIP-712 structs as a wallet does, from what is published of a contract and not from its code.
abstract contract TypedSignatures is Authorizations {
    function signFor(uint256 key, string memory name, address target, bytes32 structHash)
        internal
        view
        returns (bytes memory)
    {
        return signIn(key, domain(name, "1", block.chainid, target), structHash);
    }

    function signIn(uint256 key, bytes32 domainHash, bytes32 structHash) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, keccak256(abi.encodePacked(hex"1901", domainHash, structHash)));
        return abi.encodePacked(r, s, v);
    }

    function domain(string memory name, string memory version, uint256 chainId, address target)
        internal
        pure
        returns (bytes32)
    {
        bytes32 typeHash =
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
        return keccak256(abi.encode(typeHash, keccak256(bytes(name)), keccak256(bytes(version)), chainId, target));
    }
}
