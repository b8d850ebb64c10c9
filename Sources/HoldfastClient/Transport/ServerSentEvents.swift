import Foundation

/// The events of a `text/event-stream` response (WHATWG HTML §9.2.6).
struct ServerSentEvents: AsyncSequence, Sendable {
    /// An event. Its name is `message` unless the stream gives it another one.
    struct Event: Equatable {
        var name = "message"
        /// The lines of data, separated by line feeds.
        var data = ""
    }

    let bytes: AsyncThrowingStream<Data, any Error>

    func makeAsyncIterator() -> Iterator {
        Iterator(bytes: bytes.makeAsyncIterator())
    }

    struct Iterator: AsyncIteratorProtocol {
        fileprivate var bytes: AsyncThrowingStream<Data, any Error>.Iterator
        private var parser = ServerSentEventParser()
        /// Complete events that are not returned yet.
        private var ready: [Event] = []

        fileprivate init(bytes: AsyncThrowingStream<Data, any Error>.Iterator) {
            self.bytes = bytes
        }

        mutating func next() async throws -> Event? {
            while ready.isEmpty {
                guard let piece = try await bytes.next() else { return nil }
                ready = try parser.take(piece)
            }
            return ready.removeFirst()
        }
    }
}

/// An incremental parser of an event stream: takes pieces of bytes, and returns the events that they complete.
struct ServerSentEventParser {
    /// The incomplete line.
    private var line: [UInt8] = []
    /// The incomplete event.
    private var event = ServerSentEvents.Event()
    /// The lines of data of the incomplete event.
    private var data: [String] = []
    /// Size of ``data`` in bytes, with the ends of lines.
    private var dataSize = 0
    /// Whether the last byte was a carriage return.
    private var lastWasReturn = false

    /// Maximum size of a line and of the data of an event in bytes, to bound memory.
    private static let limit = 64 * 1024

    /// Returns the events that further bytes complete.
    ///
    /// - Throws: ``HoldfastError/invalidResponse(_:)`` if a line or an event is too long.
    mutating func take(_ bytes: some Sequence<UInt8>) throws(HoldfastError) -> [ServerSentEvents.Event] {
        var events: [ServerSentEvents.Event] = []
        for byte in bytes {
            let isFeed = byte == UInt8(ascii: "\n")
            defer { lastWasReturn = byte == UInt8(ascii: "\r") }
            // A line ends with CR, LF or both. The LF of CR LF does not end another line.
            if isFeed, lastWasReturn { continue }
            if isFeed || byte == UInt8(ascii: "\r") {
                if let event = endLine() { events.append(event) }
            } else {
                guard line.count + dataSize < Self.limit else {
                    throw .invalidResponse("an event is longer than \(Self.limit) bytes")
                }
                line.append(byte)
            }
        }
        return events
    }

    /// Adds the field of a complete line to the event. An empty line ends the event.
    private mutating func endLine() -> ServerSentEvents.Event? {
        defer { line = [] }
        guard !line.isEmpty else { return dispatch() }
        let parts = line.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        var value = parts.count > 1 ? parts[1] : []
        if value.first == UInt8(ascii: " ") { value.removeFirst() }
        switch String(decoding: parts[0], as: UTF8.self) {
        case "event": event.name = String(decoding: value, as: UTF8.self)
        case "data":
            data.append(String(decoding: value, as: UTF8.self))
            dataSize += value.count + 1
        default: break
        }
        return nil
    }

    /// Returns the complete event.
    private mutating func dispatch() -> ServerSentEvents.Event? {
        defer {
            event = ServerSentEvents.Event()
            data = []
            dataSize = 0
        }
        // An event without data is ignored (WHATWG HTML §9.2.6).
        guard !data.isEmpty else { return nil }
        event.data = data.joined(separator: "\n")
        return event
    }
}
