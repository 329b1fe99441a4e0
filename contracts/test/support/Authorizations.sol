// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LTZ} from "../../src/LTZ.sol";
import {Vm} from "./Vm.sol";

/// @notice Signs permits and ERC-3009 authorizations as a wallet does: from the published types, not from LTZ's code.
abstract contract Authorizations {
    Vm internal constant vm = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);

    struct Signature {
        uint8 v;
        bytes32 r;
        bytes32 s;
    }

    /// @dev What a user signs for an ERC-3009 transfer.
    struct Payment {
        address from;
        address to;
        uint256 value;
        uint256 validAfter;
        uint256 validBefore;
        bytes32 nonce;
    }

    /// @dev What a user signs for an EIP-2612 permit.
    struct Permit {
        address owner;
        address spender;
        uint256 value;
        uint256 nonce;
        uint256 deadline;
    }

    string internal constant TRANSFER = "TransferWithAuthorization";
    string internal constant RECEIVE = "ReceiveWithAuthorization";

    function domainOf(LTZ ltz) internal view returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("Loyalty Token"),
                keccak256("1"),
                block.chainid,
                address(ltz)
            )
        );
    }

    function sign(uint256 key, LTZ ltz, bytes32 structHash) internal view returns (Signature memory signature) {
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", domainOf(ltz), structHash));
        (signature.v, signature.r, signature.s) = vm.sign(key, digest);
    }

    function signPayment(uint256 key, LTZ ltz, string memory kind, Payment memory paid)
        internal
        view
        returns (Signature memory)
    {
        bytes32 typeHash = keccak256(
            abi.encodePacked(
                kind, "(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
            )
        );
        return sign(
            key,
            ltz,
            keccak256(
                abi.encode(typeHash, paid.from, paid.to, paid.value, paid.validAfter, paid.validBefore, paid.nonce)
            )
        );
    }

    function signCancel(uint256 key, LTZ ltz, address authorizer, bytes32 nonce)
        internal
        view
        returns (Signature memory)
    {
        bytes32 typeHash = keccak256("CancelAuthorization(address authorizer,bytes32 nonce)");
        return sign(key, ltz, keccak256(abi.encode(typeHash, authorizer, nonce)));
    }

    function signPermit(uint256 key, LTZ ltz, Permit memory permit) internal view returns (Signature memory) {
        bytes32 typeHash =
            keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        return sign(key, ltz, keccak256(abi.encode(typeHash, permit)));
    }

    function pay(LTZ ltz, Payment memory paid, Signature memory signed) internal {
        ltz.transferWithAuthorization(
            paid.from, paid.to, paid.value, paid.validAfter, paid.validBefore, paid.nonce, signed.v, signed.r, signed.s
        );
    }

    function receivePayment(LTZ ltz, Payment memory paid, Signature memory signed) internal {
        ltz.receiveWithAuthorization(
            paid.from, paid.to, paid.value, paid.validAfter, paid.validBefore, paid.nonce, signed.v, signed.r, signed.s
        );
    }
}
