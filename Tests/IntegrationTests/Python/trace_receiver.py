"""A collector of OpenTelemetry: takes spans by OTLP over HTTP in JSON, and checks each request by the published protocol.

Prints the port, then a line of JSON for each span; a request that is not valid is a line with `invalid`. With an argument,
requests must have it in the header field Authorization.
"""

import base64
import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


def identifier(value):
    """OTLP's JSON has ids as hexadecimal digits, which protobuf's own JSON reads as base64."""
    return base64.b64encode(value).decode()


def attributes(entries):
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in entries}


def spans(body):
    request = json_format.Parse(body, ExportTraceServiceRequest(), ignore_unknown_fields=False)
    for group in request.resource_spans:
        resource = attributes(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                assert span.start_time_unix_nano <= span.end_time_unix_nano
                trace, own = identifier(span.trace_id), identifier(span.span_id)
                assert len(bytes.fromhex(trace)) == 16 and len(bytes.fromhex(own)) == 8
                yield {
                    "service": resource["service.name"], "name": span.name, "kind": span.kind, "trace": trace, "id": own,
                    "parent": identifier(span.parent_span_id), "attributes": attributes(span.attributes),
                    "failed": span.status.code == span.status.STATUS_CODE_ERROR,
                    "links": [identifier(link.span_id) for link in span.links],
                }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if sys.argv[1:] and self.headers["Authorization"] != sys.argv[1]:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        try:
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
            lines = [json.dumps(span) for span in spans(body)]
        except Exception as error:
            lines = [json.dumps({"invalid": f"{error!r}: {body!r}"})]
        sys.stdout.write("".join(line + "\n" for line in lines))
        sys.stdout.flush()
        response = json_format.MessageToJson(ExportTraceServiceResponse()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
