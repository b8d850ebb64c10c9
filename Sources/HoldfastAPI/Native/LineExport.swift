import Bucketing
import HTTPServer
import HoldfastCore
import JSON

/// How an export is written: as lines, or as a page, `{"profiles":[…],"next":…}`, whose `next` is the `after` of the page
/// that follows, as `GET /v1/audit` has it.
struct ExportForm {
    /// What a page calls its elements; `nil` for lines.
    private let name: StaticString?
    /// Elements at the most.
    let limit: Int
    private var hasBegun = false
    private var hasEnded = false

    private static let longestPage = 1_000

    /// Reads `format` and `limit` of a query.
    init(_ query: [String: String], of name: StaticString) throws(HoldfastError) {
        switch query["format"] {
        case nil, "lines":
            self.name = nil
            limit = try Request.limit(query)
        case "json":
            self.name = name
            guard let limit = Int(query["limit"] ?? "100"), (1...Self.longestPage).contains(limit) else {
                throw HoldfastError(.invalid, "limit must be a whole number from 1 to \(Self.longestPage)")
            }
            self.limit = limit
        default:
            throw HoldfastError(.invalid, "format must be 'lines' or 'json'")
        }
    }

    var contentType: StaticString { name == nil ? MediaType.lines : MediaType.json }

    /// Whether it remains to be told, behind the last element, where the next page begins.
    var awaitsEnd: Bool { name != nil && !hasEnded }

    /// A piece of the export.
    ///
    /// - Parameter lines: one or more elements, each with a line feed behind it; no element has one within.
    mutating func piece(_ lines: [UInt8]) -> [UInt8] {
        guard name != nil else { return lines }
        let opening = opening()
        let separator = opening.isEmpty ? [UInt8(ascii: ",")] : []
        return opening + separator + lines.dropLast().map { $0 == UInt8(ascii: "\n") ? UInt8(ascii: ",") : $0 }
    }

    /// What comes behind the last piece of a page.
    ///
    /// - Parameter next: behind what the next page begins; `null` if there is none.
    mutating func end(next: JSONValue) -> [UInt8] {
        hasEnded = true
        return opening() + Array(#"],"next":"#.utf8) + next.encoded() + Array("}\n".utf8)
    }

    private mutating func opening() -> [UInt8] {
        guard let name, !hasBegun else { return [] }
        hasBegun = true
        return Array("{\"\(name)\":[".utf8)
    }
}

/// How many rows an export reads at once: as many as make a piece of about 128 KiB, however long rows are.
struct PageSize {
    private(set) var rows: Int
    private let most: Int
    private static let pieceLength = 128 * 1024

    /// - Parameter most: rows of a page at the most.
    init(atMost most: Int) {
        self.most = most
        rows = min(most, 4)
    }

    /// - Parameter length: bytes that the last page made.
    mutating func adjust(to length: Int) {
        if length > Self.pieceLength { rows = max(1, rows / 2) }
        if length < Self.pieceLength / 2 { rows = min(most, rows * 2) }
    }
}
