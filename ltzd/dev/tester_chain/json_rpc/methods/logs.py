"""eth_getLogs, and the filters that clients poll instead of subscribing."""

from ltzd.dev.tester_chain.json_rpc.log_query import log_query
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject
from ltzd.dev.tester_chain.json_rpc.params import Params


@method("eth_getLogs", params_at_most=1)
async def get_logs(context: MethodContext, params: Params) -> list[JsonObject]:
    return log_query(params.mapping(0, "filter")).logs(context.chain.block_tree)


@method("eth_newFilter", params_at_most=1)
async def new_filter(context: MethodContext, params: Params) -> str:
    """Collect logs from the next block on, as in geth; anvil also tells earlier ones."""
    return hex(context.filters.add(log_query(params.mapping(0, "filter"))))


@method("eth_newBlockFilter")
async def new_block_filter(context: MethodContext, _: Params) -> str:
    return hex(context.filters.add("blocks"))


@method("eth_newPendingTransactionFilter", params_at_most=1)
async def new_pending_transaction_filter(context: MethodContext, _: Params) -> str:
    return hex(context.filters.add("transactions"))


@method("eth_getFilterChanges", params_at_most=1)
async def filter_changes(context: MethodContext, params: Params) -> list[object]:
    return context.filters.changes(params.quantity(0, "id"))


@method("eth_getFilterLogs", params_at_most=1)
async def filter_logs(context: MethodContext, params: Params) -> list[JsonObject]:
    return context.filters.query(params.quantity(0, "id")).logs(context.chain.block_tree)


@method("eth_uninstallFilter", params_at_most=1)
async def uninstall_filter(context: MethodContext, params: Params) -> bool:
    return context.filters.remove(params.quantity(0, "id"))
