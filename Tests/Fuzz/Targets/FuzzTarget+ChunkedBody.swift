@testable import HTTPServer

extension FuzzTarget {
    /// A chunked body and its end are the same however its bytes are cut.
    static let chunkedBody = FuzzTarget(name: "chunked-body") { bytes in
        let whole = try ChunkedOutcome(bytes, cuts: [bytes.count])
        for cuts in Cuts.all(of: bytes) {
            try expectSame(whole, ChunkedOutcome(bytes, cuts: cuts), "cut at \(cuts)")
        }
    }
}

private struct ChunkedOutcome: Equatable {
    var body: [UInt8] = []
    /// The position of the body's end; `nil` if it is incomplete.
    var end: Int?
    var failure: UInt16?

    init(_ bytes: [UInt8], cuts: [Int]) throws {
        var decoder = ChunkedDecoder(maximumFraming: 256)
        var position = 0
        for cut in cuts where end == nil && failure == nil {
            try bytes.withUnsafeBytes { try read(UnsafeRawBufferPointer(rebasing: $0[..<cut]), &decoder, &position) }
        }
    }

    private mutating func read(
        _ bytes: UnsafeRawBufferPointer, _ decoder: inout ChunkedDecoder, _ position: inout Int
    ) throws {
        while true {
            do throws(RequestFailure) {
                switch try decoder.next(bytes[slice: position..<bytes.count]) {
                case .needsMore(let framing):
                    position += framing
                    return
                case .data(let framing, let data):
                    position += framing
                    body += bytes[slice: position..<position + data]
                    position += data
                case .end(let framing):
                    position += framing
                    end = position
                    return
                }
            } catch {
                // The bytes before the failure must be the same, whatever the pieces.
                failure = error.status.code
                return
            }
        }
    }
}
