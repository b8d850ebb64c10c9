@testable import HTTPServer

/// A request head with copied parts, so that heads can be compared.
struct ParsedHead: Equatable {
    var method: Method
    var path: String
    var query: String
    var isVersion11: Bool
    var keepsAlive: Bool
    var body: RequestHead.BodyLength
    var expectsContinue: Bool
    var fields: [String]
    var length: Int

    init(_ head: RequestHead, _ bytes: UnsafeRawBufferPointer) {
        func text(_ range: Range<Int>) -> String { String(decoding: bytes[slice: range], as: UTF8.self) }
        method = head.method
        path = text(head.path)
        query = text(head.query)
        isVersion11 = head.isVersion11
        keepsAlive = head.keepsAlive
        body = head.body
        expectsContinue = head.expectsContinue
        fields = head.fields.map { text($0.name) + "=" + text($0.value) }
        length = head.length
    }
}

/// The result of parsing some bytes.
enum ParseOutcome: Equatable {
    case head(ParsedHead)
    case failure(UInt16)
    case incomplete

    /// - Parameter cuts: the number of bytes available at each call before the last.
    static func of(
        _ bytes: [UInt8], cuts: some Sequence<Int> = [], maximumLength: Int = 16 * 1024, maximumFields: Int = 100
    ) -> ParseOutcome {
        var parser = RequestHeadParser(maximumLength: maximumLength, maximumFields: maximumFields)
        do throws(RequestFailure) {
            for cut in Array(cuts) + [bytes.count] {
                if let head = try parse(&parser, Array(bytes[..<cut])) { return .head(head) }
            }
            return .incomplete
        } catch {
            return .failure(error.status.code)
        }
    }

    private static func parse(
        _ parser: inout RequestHeadParser, _ bytes: [UInt8]
    ) throws(RequestFailure) -> ParsedHead? {
        try bytes.withUnsafeBytes { bytes in
            Result { () throws(RequestFailure) in try parser.parse(bytes).map { ParsedHead($0, bytes) } }
        }.get()
    }
}
