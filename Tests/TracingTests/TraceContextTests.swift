import Testing
import Tracing

@Suite struct TraceContextTests {
    private static let trace = "4bf92f3577b34da6a3ce929d0e0e4736"

    @Test(arguments: [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", false),
        // Flags that are not known are not passed on.
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", true),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe", false),
        // Later versions may have more.
        ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
        ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", true),
    ])
    func `A valid parent is read`(text: String, isSampled: Bool) throws {
        let context = try #require(TraceContext(traceparent: text))
        #expect(context.traceID == Self.trace)
        #expect(context.isSampled == isSampled)
        #expect(context.traceparent == "00-\(Self.trace)-00f067aa0ba902b7-0\(isSampled ? 1 : 0)")
    }

    @Test(arguments: [
        "", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0é-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        // Two fields as one list.
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ])
    func `What is not valid begins a new trace`(text: String) {
        #expect(TraceContext(traceparent: text) == nil)
        let span = Tracer(sample: 1, resource: [], send: { _, _ in .taken(rejected: 0) })
            .begin(traceparent: text, state: nil, isQuiet: false)
        #expect(span.context.traceID != Self.trace)
        #expect(span.context.isSampled)
    }
}
