import Bucketing
import HTTPServer
import JSON

/// `{"name":[…]}`. A short list is answered at once; a long one is written while it is sent, a piece in each turn of the
/// event loop.
final class JSONList: ResponseStream {
    private var json = JSONWriter()
    private var rest: Range<Int>
    private let append: (Int, inout JSONWriter) -> Void

    /// Bytes at which a piece is long enough to be sent.
    private static let pieceLength = 128 * 1024

    /// - Parameter append: writes an element.
    init<Element>(
        _ name: StaticString, _ elements: [Element], _ append: @escaping (Element, inout JSONWriter) -> Void
    ) {
        rest = elements.indices
        self.append = { append(elements[$0], &$1) }
        json.beginObject()
        json.key(name)
        json.beginArray()
    }

    func respond(_ call: Call) {
        appendPiece()
        if rest.isEmpty {
            call.respond(json: json.take())
        } else {
            call.respond(Response(.ok, contentType: MediaType.json, body: .stream(self)))
        }
    }

    func produce(_ writer: StreamWriter) {
        if json.count == 0 {
            guard !rest.isEmpty else { return writer.finish() }
            appendPiece()
            if rest.isEmpty { json.endLine() }
        }
        writer.write(json.take())
    }

    private func appendPiece() {
        while json.count < Self.pieceLength, let index = rest.first {
            rest.removeFirst()
            append(index, &json)
        }
        guard rest.isEmpty else { return }
        json.endArray()
        json.endObject()
    }
}
