import JSON

/// Encodes spans for a collector: OpenTelemetry's protocol (OTLP) in its JSON form, in which ids are hexadecimal and
/// 64-bit numbers are strings.
enum OTLP {
    /// The value of `STATUS_CODE_ERROR`.
    private static let statusOfError = 2
    /// The bytes of JSON that a span takes, roughly. Only used to reserve memory.
    private static let typicalSpanSize = 512

    /// Encodes an `ExportTraceServiceRequest`:
    ///
    ///     {"resourceSpans": [{"resource": {"attributes": […]},
    ///                         "scopeSpans": [{"scope": {"name": "holdfast"}, "spans": [{…}, {…}]}]}]}
    ///
    /// - Parameter resource: the attributes of the program.
    static func encode(_ spans: ArraySlice<EndedSpan>, of resource: [(StaticString, String)]) -> [UInt8] {
        var writer = JSONWriter(capacity: typicalSpanSize * spans.count)
        writer.beginObject()
        writer.key("resourceSpans")
        writer.beginArray()
        writer.beginObject()
        writer.key("resource")
        writer.beginObject()
        appendAttributes(resource.map { ($0, .text($1)) }, to: &writer)
        writer.endObject()
        writer.key("scopeSpans")
        writer.beginArray()
        appendScope(of: spans, to: &writer)
        writer.endArray()
        writer.endObject()
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }

    private static func appendScope(of spans: ArraySlice<EndedSpan>, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("scope")
        writer.beginObject()
        writer.member("name", "holdfast")
        writer.endObject()
        writer.key("spans")
        writer.beginArray()
        for span in spans { append(span, to: &writer) }
        writer.endArray()
        writer.endObject()
    }

    private static func append(_ span: EndedSpan, to writer: inout JSONWriter) {
        writer.beginObject()
        appendIDs(of: span.context, to: &writer)
        if let parent = span.parentID { writer.member("parentSpanId", TraceContext.text(parent)) }
        writer.member("name", span.name)
        writer.member("kind", span.kind.rawValue)
        writer.member("startTimeUnixNano", "\(span.startedAt)")
        writer.member("endTimeUnixNano", "\(span.endedAt)")
        var attributes = span.attributes
        if let error = span.error { attributes.append((name: "error.type", value: .text(error))) }
        appendAttributes(attributes, to: &writer)
        if !span.links.isEmpty {
            writer.key("links")
            writer.beginArray()
            for link in span.links {
                writer.beginObject()
                appendIDs(of: link, to: &writer)
                writer.endObject()
            }
            writer.endArray()
        }
        if span.error != nil {
            writer.key("status")
            writer.beginObject()
            writer.member("code", statusOfError)
            writer.endObject()
        }
        writer.endObject()
    }

    /// Appends the members that identify a span.
    private static func appendIDs(of context: TraceContext, to writer: inout JSONWriter) {
        writer.member("traceId", context.traceID)
        writer.member("spanId", TraceContext.text(context.spanID))
    }

    /// Appends the member `attributes`: `[{"key": "http.route", "value": {"stringValue": "/v1/decide"}}, …]`.
    private static func appendAttributes(_ attributes: Span.Attributes, to writer: inout JSONWriter) {
        writer.key("attributes")
        writer.beginArray()
        for attribute in attributes {
            writer.beginObject()
            writer.member("key", "\(attribute.name)")
            writer.key("value")
            writer.beginObject()
            switch attribute.value {
            case .text(let text): writer.member("stringValue", text)
            case .number(let number): writer.member("intValue", "\(number)")
            }
            writer.endObject()
            writer.endObject()
        }
        writer.endArray()
    }
}
