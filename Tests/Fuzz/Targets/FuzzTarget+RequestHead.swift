@testable import HTTPServer

extension FuzzTarget {
    /// A head is the same however its bytes are cut, and no part of it has characters that other programs read as a line
    /// end.
    static let requestHead = FuzzTarget(name: "request-head") { bytes in
        let whole = HeadOutcome(bytes, cuts: [bytes.count])
        for cuts in Cuts.all(of: bytes) {
            try expectSame(whole, HeadOutcome(bytes, cuts: cuts), "cut at \(cuts)")
        }
        if case .head(_, _, let texts) = whole {
            for text in texts where text.utf8.contains(where: { $0 == 0 || $0 == 0x0A || $0 == 0x0D }) {
                throw Finding("a part of the head contains NUL, CR or LF: \(text.debugDescription)")
            }
        }
    }
}

private enum HeadOutcome: Equatable {
    case head(length: Int, facts: String, texts: [String])
    case failure(UInt16)
    case incomplete

    init(_ bytes: [UInt8], cuts: [Int]) {
        var parser = RequestHeadParser(maximumLength: 2_048, maximumFields: 16)
        self = .incomplete
        bytes.withUnsafeBytes { bytes in
            do throws(RequestFailure) {
                for cut in cuts {
                    guard let head = try parser.parse(bytes[slice: 0..<cut]) else { continue }
                    self = .head(
                        length: head.length,
                        facts:
                            "\(head.method.name) \(head.isVersion11) \(head.keepsAlive) \(head.expectsContinue) \(head.body)",
                        texts: ([head.path, head.query] + head.fields.flatMap { [$0.name, $0.value] }).map {
                            String(decoding: bytes[slice: $0], as: UTF8.self)
                        })
                    return
                }
            } catch {
                self = .failure(error.status.code)
            }
        }
    }
}
