"""Places an order and reads it back, knowing nothing of Holdfast but its addresses.

Every message is built from what the servers tell by reflection (v1alpha, the one Python's library speaks); no code
was generated from our files, and nothing but Python's own gRPC touches the wire. Prints what it saw as one JSON object.
"""

import argparse
import json

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

PATIENCE_S = 20


class Server:
    """One server as it describes itself."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(timeout=PATIENCE_S)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def message(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))

    def method(self, service, name):
        return self.pool.FindServiceByName(service).FindMethodByName(name)

    def call(self, service, name, **fields):
        """Calls a unary method; fields as in proto's JSON form. Answers in that form, too."""
        method = self.method(service, name)
        request = json_format.ParseDict(fields, self.message(method.input_type.full_name)(), descriptor_pool=self.pool)
        stub = self.channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self.message(method.output_type.full_name).FromString,
        )
        return json_format.MessageToDict(stub(request, timeout=PATIENCE_S), descriptor_pool=self.pool)

    def http_annotation(self, service, name):
        """The google.api.http option of a method, read with the server's own descriptors."""
        options = self.message("google.protobuf.MethodOptions").FromString(
            self.method(service, name).GetOptions().SerializeToString()
        )
        extension = self.pool.FindExtensionByName("google.api.http")
        return json_format.MessageToDict(options.Extensions[extension], descriptor_pool=self.pool)

    def services_by_reflection_v1(self):
        """The services as the newer reflection protocol lists them; its messages are those of v1alpha."""
        stub = self.channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        answers = stub(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=PATIENCE_S)
        return sorted(service.name for answer in answers for service in answer.list_services_response.service)

    def error(self, service, name, **fields):
        """Calls a method that refuses, and reads the details of the refusal."""
        try:
            self.call(service, name, **fields)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata())
            status = self.message("google.rpc.Status").FromString(trailers["grpc-status-details-bin"])
            return {**json_format.MessageToDict(status, descriptor_pool=self.pool), "code": error.code().name}
        raise AssertionError(f"{name} did not refuse {fields}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--orders", required=True, help="host:port of order-svc")
    arguments.add_argument("--inventory", required=True, help="host:port of inventory-svc")
    given = arguments.parse_args()
    inventory, orders = Server(given.inventory), Server(given.orders)

    received = inventory.call(
        "inventory.v1.StockService", "ReceiveStock", sku="PY-1", quantity=5, requestId="py.receive", reason="PURCHASE"
    )
    service = "orders.v1.OrderService"
    line = {"sku": "PY-1", "quantity": 2, "unitPrice": {"currency": "GBP", "minorUnits": 250}}
    placed = orders.call(
        service, "CreateOrder", requestId="py.order", lines=[line], payNow={"paymentToken": "sim_approve"}
    )
    read = orders.call(service, "GetOrder", orderId=placed["orderId"])
    stock = inventory.call("inventory.v1.InventoryService", "GetStock", sku="PY-1")
    refusal = orders.error(service, "CreateOrder", requestId="", lines=[])
    print(
        json.dumps(
            {
                "received": received,
                "placed": placed,
                "read": read,
                "stock": stock,
                "refusal": refusal,
                "http": orders.http_annotation(service, "CreateOrder"),
                "services": {
                    "v1alpha": sorted(orders.database.get_services()),
                    "v1": orders.services_by_reflection_v1(),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
