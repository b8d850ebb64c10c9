import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// A body of any length that is read from the store piece by piece while it is sent, so that only one piece is in
/// memory. Belongs to one event loop.
protocol StoredStream: ResponseStream {
    /// Returns the next piece; `nil` at the end.
    func next() async throws -> [UInt8]?
}

extension StoredStream {
    func produce(_ writer: StreamWriter) {
        writer.start {
            do {
                if let piece = try await self.next() { writer.write(piece) } else { writer.finish() }
            } catch {
                writer.fail(Problem(error).response(on: nil))
            }
        }
    }
}

/// The format of an export: NDJSON lines, or with `?format=json` a page `{"profiles":[…],"next":…}`, where `next` is
/// the `after` of the page that follows.
///
/// A ``StoredStream`` encodes elements as lines, and converts each group of lines with ``piece(_:)``. It ends a page
/// with ``end(next:)``.
struct ExportForm {
    /// The name of the member of a page that has the elements; `nil` for lines.
    private let name: StaticString?
    /// The maximum number of elements.
    let limit: Int
    private var hasBegun = false
    private var hasEnded = false

    /// Reads `format` and `limit` of a query.
    init(_ query: [String: String], of name: StaticString) throws(CoreError) {
        switch query["format"] {
        case nil, "lines":
            self.name = nil
            limit = try Request.limit(query)
        case "json":
            self.name = name
            limit = try Request.pageLimit(query)
        case let text?:
            throw CoreError(.invalid, "`format` must be 'lines' or 'json'; got '\(text)'")
        }
    }

    var contentType: StaticString { name == nil ? MediaType.lines : MediaType.json }

    /// Whether the export is a page whose ``end(next:)`` has not been returned yet.
    var awaitsEnd: Bool { name != nil && !hasEnded }

    /// Converts lines into a piece of the export.
    ///
    /// - Parameter lines: one or more elements, each followed by a line feed and none containing one.
    mutating func piece(_ lines: [UInt8]) -> [UInt8] {
        guard name != nil else { return lines }
        let opening = opening()
        let separator = opening.isEmpty ? [UInt8(ascii: ",")] : []
        return opening + separator + lines.dropLast().map { $0 == UInt8(ascii: "\n") ? UInt8(ascii: ",") : $0 }
    }

    /// Returns the end of a page, after its last piece.
    ///
    /// - Parameter next: the `after` of the next page; `null` if there is none.
    mutating func end(next: JSONValue) -> [UInt8] {
        hasEnded = true
        return opening() + Array(#"],"next":"#.utf8) + next.encoded() + Array("}\n".utf8)
    }

    /// Returns the start of a page the first time, and nothing later.
    private mutating func opening() -> [UInt8] {
        guard let name, !hasBegun else { return [] }
        hasBegun = true
        return Array("{\"\(name)\":[".utf8)
    }
}

/// The number of rows that a stream reads from the store at once. It begins small and adapts to the length of the rows,
/// so that a piece has about 128 KiB.
struct PageSize {
    private(set) var rows: Int
    private let maximumRows: Int
    /// The number of rows of the first piece, when the length of rows is not known yet.
    private static let initialRows = 4
    /// The intended maximum length of a piece in bytes.
    private static let pieceLength = 128 * 1024

    init(atMost maximumRows: Int) {
        self.maximumRows = maximumRows
        rows = min(maximumRows, Self.initialRows)
    }

    /// Adapts to the length of the last piece.
    ///
    /// - Parameter length: the length of the last piece in bytes.
    mutating func adjust(to length: Int) {
        if length > Self.pieceLength { rows = max(1, rows / 2) }
        if length < Self.pieceLength / 2 { rows = min(maximumRows, rows * 2) }
    }
}

/// The response `{"name":[…],"next":…}`. A short list is sent at once. A long list is encoded while it is sent, one
/// piece in each iteration of the event loop, so that it neither blocks the loop nor fills the memory.
final class JSONList: ResponseStream {
    private var json = JSONWriter()
    /// The indices of the elements that have not been encoded.
    private var rest: Range<Int>
    private let next: JSONValue
    /// Encodes the element with an index.
    private let append: (Int, inout JSONWriter) -> Void

    /// The minimum length in bytes of all pieces except the last.
    private static let pieceLength = 128 * 1024

    /// - Parameters:
    ///   - name: the name of the member with the elements.
    ///   - describe: returns the JSON of an element.
    init<Element>(
        _ name: StaticString, _ page: ListPage.Selection<Element>, _ describe: @escaping (Element) -> JSONValue
    ) {
        rest = page.elements.indices
        next = page.next.map { .string($0) } ?? .null
        append = { index, writer in writer.value(describe(page.elements[index])) }
        json.beginObject()
        json.key(name)
        json.beginArray()
    }

    /// Returns the response: the whole list if it is short, or a stream.
    func response(entityTag: EntityTag? = nil) -> Response {
        appendPiece()
        return rest.isEmpty
            ? .json(json.take(), entityTag: entityTag)
            : Response(.ok, contentType: MediaType.json, entityTag: entityTag, body: .stream(self))
    }

    func produce(_ writer: StreamWriter) {
        if json.count == 0 {
            guard !rest.isEmpty else { return writer.finish() }
            appendPiece()
            if rest.isEmpty { json.endLine() }
        }
        writer.write(json.take())
    }

    /// Encodes elements until a piece is long enough. After the last element it also encodes the end.
    private func appendPiece() {
        while json.count < Self.pieceLength, let index = rest.first {
            rest.removeFirst()
            append(index, &json)
        }
        guard rest.isEmpty else { return }
        json.endArray()
        json.key("next")
        json.value(next)
        json.endObject()
    }
}
