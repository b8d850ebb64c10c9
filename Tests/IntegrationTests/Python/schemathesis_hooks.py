"""Teaches Schemathesis to send lines of JSON, whose schema is a string."""
import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value.encode() if isinstance(value, str) else b""
